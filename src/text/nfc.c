/*
 * nfc.c: NFC = decompose canonically, order marks by combining class, compose. utf8proc has the data, decomposes single
 * code points and composes; the ordering is ours, because utf8proc's own takes quadratic time on a long run of marks
 * and prompts come from anyone.
 */
#include "text/nfc.h"

#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "text/utf8.h"

/* Every code point of these ranges is unchanged by NFC alone, has combining class 0 and never composes with what is
 * before it; so a text of nothing else is NFC. (U+0000-U+02FF is tested first.) Not all such code points: the blocks of
 * common scripts. Unassigned ones are left out where a later Unicode could put a mark. tests/unit/test_nfc.c proves
 * the table against utf8proc. */
static const struct {
    int32_t first, last;
} sure_ranges[] = {
    {0x0388, 0x0482},   /* Greek, Cyrillic up to its marks */
    {0x048A, 0x0590},   /* Cyrillic, Armenian */
    {0x0620, 0x064A},   /* Arabic letters */
    {0x0E01, 0x0E30},   /* Thai consonants */
    {0x1E00, 0x1F70},   /* Latin and Greek with diacritics */
    {0x2010, 0x20CF},   /* punctuation, superscripts, currency */
    {0x2190, 0x2328},   /* arrows, operators, technical */
    {0x232B, 0x2ADB},   /* box drawing, symbols, dingbats */
    {0x3000, 0x3029},   /* CJK punctuation */
    {0x3030, 0x3098},   /* hiragana */
    {0x309B, 0xA48C},   /* katakana, bopomofo, CJK ideographs, Yi */
    {0xAC00, 0xD7A3},   /* hangul syllables */
    {0xE000, 0xF8FF},   /* private use */
    {0xFF00, 0xFFEF},   /* full and half width forms */
    {0x1F000, 0x1FAFF}, /* pictographs */
    {0x20000, 0x2A6DF}, /* CJK extension B */
};

static bool is_sure(int32_t code)
{
    for (size_t i = 0; i < sizeof sure_ranges / sizeof sure_ranges[0]; i++) {
        if (code < sure_ranges[i].first)
            return false;
        if (code <= sure_ranges[i].last)
            return true;
    }
    return false;
}

bool swl_nfc_is_sure(const uint8_t *text, size_t n_bytes)
{
    int32_t n;

    for (size_t i = 0; i < n_bytes; i += (size_t)n) {
        if (text[i] < 0xCC) /* below U+0300 */
            n = text[i] < 0x80 ? 1 : 2;
        else if (!is_sure(swl_utf8_code(text + i, &n)))
            return false;
    }
    return true;
}

static int32_t combining_class(int32_t code)
{
    return (int32_t)utf8proc_get_property(code)->combining_class;
}

/* A stable sort of a run of marks by class: insertion while it is short, else counting. */
static void order_run(int32_t *run, size_t n, int32_t *spare)
{
    size_t at[257] = {0};

    if (n <= 16) {
        for (size_t i = 1; i < n; i++) {
            int32_t code = run[i], class = combining_class(code);
            size_t k = i;

            for (; k && combining_class(run[k - 1]) > class; k--)
                run[k] = run[k - 1];
            run[k] = code;
        }
        return;
    }
    for (size_t i = 0; i < n; i++)
        at[(combining_class(run[i]) & 255) + 1]++;
    for (int32_t c = 0; c < 256; c++)
        at[c + 1] += at[c];
    for (size_t i = 0; i < n; i++)
        spare[at[combining_class(run[i]) & 255]++] = run[i];
    memcpy(run, spare, n * sizeof *run);
}

static void order(int32_t *codes, size_t n, int32_t *spare)
{
    for (size_t i = 0; i < n;) {
        size_t k = i;

        while (k < n && combining_class(codes[k]))
            k++;
        if (k - i > 1)
            order_run(codes + i, k - i, spare);
        i = k + (k == i);
    }
}

/* Decomposes into codes (NULL: only counts). Returns the number of code points. */
static size_t decompose(const uint8_t *text, size_t n_bytes, int32_t *codes, size_t n_max)
{
    size_t n = 0;
    int32_t n_char;
    int boundary = 0;

    for (size_t i = 0; i < n_bytes; i += (size_t)n_char) {
        int32_t code = swl_utf8_code(text + i, &n_char);

        n += (size_t)utf8proc_decompose_char(code, codes ? codes + n : NULL, codes ? (utf8proc_ssize_t)(n_max - n) : 0,
                                             UTF8PROC_COMPOSE | UTF8PROC_STABLE, &boundary);
    }
    return n;
}

swl_status swl_nfc(uint8_t **out, size_t *n_out, const uint8_t *text, size_t n_bytes, swl_error *err)
{
    size_t n = decompose(text, n_bytes, NULL, 0);
    int32_t *codes = swl_calloc(n, sizeof *codes), *spare = swl_calloc(n, sizeof *spare);
    uint8_t *p = NULL;
    utf8proc_ssize_t n_codes;

    *out = NULL;
    *n_out = 0;
    if (codes && spare) {
        decompose(text, n_bytes, codes, n);
        order(codes, n, spare);
        n_codes = utf8proc_normalize_utf32(codes, (utf8proc_ssize_t)n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        p = n_codes < 0 ? NULL : swl_calloc((size_t)n_codes, 4);
        for (utf8proc_ssize_t i = 0; p && i < n_codes; i++)
            *n_out += (size_t)swl_utf8_put(codes[i], p + *n_out);
    }
    swl_free(codes);
    swl_free(spare);
    *out = p;
    return p ? SWL_OK : swl_fail(err, SWL_E_NOMEM, "tokenizer: out of memory normalising %zu bytes", n_bytes);
}
