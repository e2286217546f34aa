/* fuzz_safetensors_index.c: an accepted index is sorted, names plain files, and finds each of its names. */
#include "fuzz/fuzz.h"

#include <string.h>

#include "base/mem.h"
#include "format/safetensors_index.h"

static void check_places(const swl_st_index *x)
{
    size_t i;

    for (i = 0; i < x->n; i++) {
        const swl_st_place *p = &x->places[i];

        CHECK(i == 0 || strcmp(p[-1].name, p->name) < 0);
        CHECK(swl_st_index_find(x, p->name) == p->shard);
        CHECK(p->shard[0] && !strchr(p->shard, '/') && !strstr(p->shard, ".."));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    swl_error err = {0};
    swl_st_index x;
    char *text = swl_calloc(size, 1);

    if (size)
        memcpy(text, data, size);
    if (!swl_st_index_parse(&x, text, size, "input", &err))
        check_places(&x);
    else
        CHECK(err.code && err.message[0]);
    swl_st_index_deinit(&x);
    return 0;
}
