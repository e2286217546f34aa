/*
 * What a source says about its files: a hub's tree, a manifest, hashes.json, and the state file of an installation. The first
 * byte chooses. It is refused, or every path stays inside the directory, every size is one of a file, and every digest is one.
 */
#include "fuzz/fuzz.h"

#include <string.h>

#include "base/mem.h"
#include "base/path.h"
#include "install/listing.h"
#include "install/state.h"

static void check_digest(const swl_digest *d)
{
    static const size_t digits[] = {0, 64, 40};
    char text[SWL_DIGEST_TEXT];
    swl_digest again;

    CHECK(strlen(d->hex) == digits[d->kind]);
    swl_digest_print(d, text);
    CHECK(swl_digest_parse(&again, text) && swl_digest_equal(&again, d));
}

static void check_listing(const swl_listing *l)
{
    CHECK(l->n <= SWL_LISTING_FILES_MAX);
    for (int32_t i = 0; i < l->n; i++) {
        CHECK(swl_path_is_safe(l->e[i].path));
        CHECK(l->e[i].size == SWL_SIZE_UNKNOWN || l->e[i].size <= UINT64_C(1) << 53);
        check_digest(&l->e[i].digest[0]);
        check_digest(&l->e[i].digest[1]);
    }
}

static void check_state(const swl_state *s)
{
    for (int32_t i = 0; i < s->n_files; i++) {
        const swl_state_file *f = &s->files[i];

        CHECK(swl_path_is_safe(f->path));
        check_digest(&f->digest);
        for (int32_t k = 0; k < f->done.n; k++) {
            CHECK(f->done.s[k].begin < f->done.s[k].end && f->done.s[k].end <= f->size);
            CHECK(!k || f->done.s[k - 1].end < f->done.s[k].begin);
        }
    }
}

static void try_state(const char *text, size_t n)
{
    json_t *root = NULL;
    swl_state s;

    if (!swl_json_parse(&root, text, n, "state", NULL) && !swl_state_parse(&s, root, "state", NULL)) {
        check_state(&s);
        swl_state_deinit(&s);
    }
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    swl_listing l = {0};
    swl_error err = {0};
    char *text;
    swl_status st = SWL_OK;

    if (size < 1)
        return 0;
    text = swl_calloc(size, 1);
    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    if (data[0] % 4 == 0)
        st = swl_listing_tree(&l, text, size - 1, "tree", &err);
    else if (data[0] % 4 == 1)
        st = swl_listing_hashes(&l, text, size - 1, "hashes.json", &err);
    else if (data[0] % 4 == 2)
        st = swl_listing_manifest(&l, text, size - 1, "manifest.json", &err);
    else
        try_state(text, size - 1);
    if (!st)
        st = swl_listing_finish(&l, "listing", &err);
    CHECK(!st || err.message[0]);
    check_listing(&l);
    swl_listing_free(&l);
    swl_free(text);
    return 0;
}
