/* version.c: swiftlet version. */
#include "commands.h"
#include "output.h"

#ifndef SWL_COMMIT /* cmake/commit.cmake */
#define SWL_COMMIT ""
#endif

typedef struct part {
    const char *name, *licence, *use;
} part;

static const part parts[] = {
    {"swiftlet", "Apache-2.0", "this program"},
    {"jansson", "MIT", "JSON"},
    {"PCRE2", "BSD-3-Clause", "the tokenizer's patterns"},
    {"utf8proc", "MIT and Unicode-DFS-2015", "normal forms and widths of text"},
    {"OpenSSL libcrypto", "Apache-2.0", "digests"},
    {"libcurl", "curl (MIT-like)", "downloads"},
#ifdef SWL_HAVE_SERVER
    {"libevent", "BSD-3-Clause", "connections of the server"},
    {"zlib", "Zlib", "compressed requests"},
#endif
};
#define N_PARTS (int)(sizeof parts / sizeof parts[0])

const char *commit_built(void)
{
    return SWL_COMMIT;
}

static json_t *licences(void)
{
    json_t *list = json_array();

    for (int i = 0; i < N_PARTS; i++) {
        json_t *row = json_object();
        json_object_set_new(row, "name", json_string(parts[i].name));
        json_object_set_new(row, "licence", json_string(parts[i].licence));
        json_object_set_new(row, "use", json_string(parts[i].use));
        json_array_append_new(list, row);
    }
    return list;
}

swl_status run_version(const arguments *a, swl_error *err)
{
    (void)err;
    if (opt_on(a, OPT_JSON)) {
        json_t *o = out_object();
        json_object_set_new(o, "swiftlet", json_string(swl_version()));
        json_object_set_new(o, "commit", *SWL_COMMIT ? json_string(SWL_COMMIT) : json_null());
        json_object_set_new(o, "jansson", json_string(JANSSON_VERSION));
        if (opt_on(a, OPT_LICENSES))
            json_object_set_new(o, "licences", licences());
        out_json(o);
        return SWL_OK;
    }
    out_printf("swiftlet %s\n", swl_version());
    for (int i = 0; opt_on(a, OPT_LICENSES) && i < N_PARTS; i++)
        out_printf("%-18s %-26s %s\n", parts[i].name, parts[i].licence, parts[i].use);
    return SWL_OK;
}
