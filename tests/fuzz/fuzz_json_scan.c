/*
 * fuzz_json_scan.c: the scanner accepts what jansson accepts. It differs on purpose in depth, and in that it skips
 * numbers without asking whether they fit a type. A NUL byte outside strings is no JSON, yet jansson overlooks some.
 */
#include "fuzz/fuzz.h"

#include <jansson.h>
#include <string.h>

#include "base/json_scan.h"
#include "base/mem.h"

static bool scan_accepts(const uint8_t *data, size_t size, swl_error *err)
{
    char *text = swl_calloc(size, 1);
    swl_scan s = {.begin = text, .p = text, .end = text + size, .path = "input", .err = err};
    swl_status st;

    if (size)
        memcpy(text, data, size);
    st = swl_scan_skip(&s);
    if (!st)
        st = swl_scan_finish(&s);
    swl_free(text);
    return !st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    swl_error err = {0};
    json_error_t je = {0};
    bool ours = scan_accepts(data, size, &err);
    json_t *root = json_loadb(size ? (const char *)data : "", size, JSON_DECODE_ANY, &je);

    if (ours && !root)
        CHECK(strstr(je.text, "too big") || strstr(je.text, "overflow"));
    if (!ours && root && !memchr(data, 0, size))
        CHECK(strstr(err.message, "fewer levels"));
    json_decref(root);
    return 0;
}
