/*
 * fuzz_gguf.c: what the reader of GGUF headers accepts is consistent: tensors of known types lie inside the file and
 * apart, names are sorted and found, values lie inside the header and can be walked to their end.
 */
#include "fuzz/fuzz.h"

#include <string.h>

#include "base/mem.h"
#include "format/gguf.h"

static void check_value(const swl_gguf *g, const swl_gguf_value *v)
{
    const uint8_t *p = v->data;
    char *text = NULL;
    const char *s;
    uint64_t n;
    int64_t i;
    double f;
    bool b;

    CHECK(swl_gguf_value_find(g, v->key) == v);
    if (v->kind == SWL_GGUF_STRING) {
        for (uint64_t k = 0; k < v->n; k++)
            swl_gguf_next_string(&p, &s, &n);
        CHECK(p == v->data + v->n_bytes);
    } else if (v->kind != SWL_GGUF_F32 && v->kind != SWL_GGUF_F64) {
        for (uint64_t k = 0; k < v->n; k++)
            swl_gguf_int_at(v, k);
    }
    swl_gguf_int(g, v->key, SWL_GGUF_REQUIRED, -5, 5, &i, NULL);
    swl_gguf_float(g, v->key, SWL_GGUF_REQUIRED, &f, NULL);
    swl_gguf_bool(g, v->key, SWL_GGUF_REQUIRED, &b, NULL);
    if (!swl_gguf_string(g, v->key, SWL_GGUF_REQUIRED, &text, NULL))
        CHECK(text);
    swl_free(text);
}

static void check_set(const swl_gguf *g, uint64_t file_size)
{
    for (int32_t i = 0; i < swl_gguf_n_values(g); i++)
        check_value(g, swl_gguf_value_at(g, i));
    for (int32_t i = 0; i < swl_gguf_count(g); i++) {
        const swl_gguf_tensor *t = swl_gguf_at(g, i);

        CHECK(swl_gguf_find(g, t->name) == t);
        CHECK(t->offset <= file_size && t->size <= file_size - t->offset);
        CHECK(!i || strcmp(swl_gguf_at(g, i - 1)->name, t->name) < 0);
        for (int32_t k = 0; k < i && i < 64; k++) {
            const swl_gguf_tensor *u = swl_gguf_at(g, k);

            CHECK(t->offset + t->size <= u->offset || u->offset + u->size <= t->offset || !t->size || !u->size);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint64_t behind[] = {0, 4096}; /* bytes of a file that goes on */

    for (int i = 0; i < 2; i++) {
        swl_error err = {0};
        swl_gguf *g;

        if (swl_gguf_parse(&g, data, size, size + behind[i], "input", NULL, &err)) {
            CHECK(!g && err.code && err.message[0]);
            continue;
        }
        check_set(g, size + behind[i]);
        swl_gguf_close(g);
    }
    return 0;
}
