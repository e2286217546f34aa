/* byte_bpe.h: a tokenizer.json of the 256 bytes and some merges, for targets that want one and read no files. */
#ifndef SWL_FUZZ_BYTE_BPE_H
#define SWL_FUZZ_BYTE_BPE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { BYTE_BPE_JSON = 16384 };

/* Its length. added: the members of "added_tokens". */
static inline size_t byte_bpe(char json[BYTE_BPE_JSON], const char *added, const char *const *merges, int32_t n)
{
    char *p = json, *end = json + BYTE_BPE_JSON;
    int32_t next = 0x100;

    p += snprintf(
        p, (size_t)(end - p),
        "{\"normalizer\":{\"type\":\"NFC\"},\"decoder\":{\"type\":\"ByteLevel\"},\"pre_tokenizer\":{\"type\":"
        "\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":"
        "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|\\\\p{N}| "
        "?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}},{\"type\":"
        "\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},\"added_tokens\":[%s],"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{", added);
    for (int32_t b = 0; b < 256; b++) {
        bool self = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;

        p += snprintf(p, (size_t)(end - p), "\"\\u%04x\":%d,", self ? b : next++, b);
    }
    for (int32_t i = 0; i < n; i++) {
        const char *space = strchr(merges[i], ' ');

        p += snprintf(p, (size_t)(end - p), "\"%.*s%s\":%d%s", (int)(space - merges[i]), merges[i], space + 1, 256 + i,
                      i + 1 < n ? "," : "},\"merges\":[");
    }
    for (int32_t i = 0; i < n; i++)
        p += snprintf(p, (size_t)(end - p), "\"%s\"%s", merges[i], i + 1 < n ? "," : "]}}");
    return (size_t)(p - json);
}

#endif
