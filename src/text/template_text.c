/*
 * template_text.c: strings as Python sees them, by code point over UTF-8: case (full mappings), white space, search,
 * split, slices. Strings are well-formed: the source is checked, jansson checks the data, and nothing here cuts inside
 * a character. Results share the memory of their source where they can.
 */
#define _GNU_SOURCE /* memmem: linear on any input */
#include "text/template_impl.h"

#include <utf8proc.h>
#if defined(_WIN32)
#include "base/os_win.h"
#endif

/* ---- code points ------------------------------------------------------------------------------------------------- */

int swl_tpl_utf8(const char *s, size_t n, int32_t *cp)
{
    uint8_t c = (uint8_t)*s;
    int len = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4, i;

    if (len == 1 || (size_t)len > n) {
        *cp = c;
        return 1;
    }
    *cp = c & (0xff >> (len + 1));
    for (i = 1; i < len; i++)
        *cp = *cp << 6 | (s[i] & 0x3f);
    return len;
}

size_t swl_tpl_utf8_put(char *dst, int32_t cp)
{
    return (size_t)utf8proc_encode_char(cp, (utf8proc_uint8_t *)dst);
}

bool swl_tpl_utf8_valid(const char *s, size_t n, size_t *bad)
{
    utf8proc_int32_t cp;
    utf8proc_ssize_t len;
    size_t i;

    for (i = 0; i < n; i += (size_t)len) {
        len = utf8proc_iterate((const utf8proc_uint8_t *)s + i, (utf8proc_ssize_t)(n - i), &cp);
        if (len < 1) {
            *bad = i;
            return false;
        }
    }
    return true;
}

/* str.isspace: what strip() removes and what \s means in the template's syntax. */
bool swl_tpl_is_space(int32_t cp)
{
    return (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 || cp == 0xa0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f ||
           cp == 0x3000;
}

int64_t swl_tpl_text_length(swl_tpl_value s)
{
    int64_t n = 0;
    uint32_t i;

    for (i = 0; i < s.n; i++)
        n += (s.u.s[i] & 0xc0) != 0x80;
    return n;
}

/* The part of s from byte `from` to byte `to`. */
static swl_tpl_value part(swl_tpl_value s, size_t from, size_t to)
{
    s.u.s = s.n ? s.u.s + from : "";
    s.n = to > from ? (uint32_t)(to - from) : 0;
    return s;
}

static size_t skip_chars(swl_tpl_value s, size_t at, int64_t n)
{
    int32_t cp;

    for (; n > 0 && at < s.n; n--)
        at += (size_t)swl_tpl_utf8(s.u.s + at, s.n - at, &cp);
    return at;
}

/* n characters beginning with number `from`, every step-th; the caller has clipped them to the string. */
swl_tpl_value swl_tpl_text_slice(swl_tpl_run *r, swl_tpl_value s, int64_t from, int64_t step, int64_t n)
{
    size_t at, mark = r->out_n;
    uint32_t *starts;
    int64_t i, length;

    swl_tpl_charge(r, s.n / 16);
    if (step == 1 || n <= 1) {
        at = skip_chars(s, 0, from);
        return part(s, at, skip_chars(s, at, n));
    }
    length = swl_tpl_text_length(s);
    starts = swl_tpl_alloc(r, (size_t)length + 1, sizeof *starts);
    if (!starts)
        return swl_tpl_undefined("");
    for (i = 0, at = 0; i <= length; i++, at = skip_chars(s, at, 1))
        starts[i] = (uint32_t)at;
    for (i = 0; i < n && !swl_tpl_failed(r); i++, from += step)
        swl_tpl_put(r, s.u.s + starts[from], starts[from + 1] - starts[from]);
    return swl_tpl_capture(r, mark);
}

/* ---- stripping and searching ------------------------------------------------------------------------------------- */

static bool strips(swl_tpl_run *r, int32_t cp, const char *p, int len, swl_tpl_value chars)
{
    swl_tpl_value one = swl_tpl_text(p, (size_t)len);

    if (chars.kind != TPL_STR)
        return swl_tpl_is_space(cp);
    swl_tpl_charge(r, 1 + chars.n / 64);
    return swl_tpl_find(r, chars, one, 0, chars.n, false) >= 0;
}

swl_tpl_value swl_tpl_strip(swl_tpl_run *r, swl_tpl_value s, swl_tpl_value chars, bool left, bool right)
{
    size_t from = 0, to = s.n, at;
    int32_t cp;
    int len;

    if (chars.kind != TPL_STR && chars.kind != TPL_MISSING && chars.kind != TPL_NONE)
        swl_tpl_fail(r, SWL_E_ARG, "strip argument must be None or str, not %s", swl_tpl_type_name(chars));
    for (; left && from < to && !swl_tpl_failed(r); from += (size_t)len) {
        len = swl_tpl_utf8(s.u.s + from, to - from, &cp);
        if (!strips(r, cp, s.u.s + from, len, chars))
            break;
    }
    for (; right && to > from && !swl_tpl_failed(r); to = at) {
        for (at = to - 1; at > from && (s.u.s[at] & 0xc0) == 0x80; at--)
            ;
        len = swl_tpl_utf8(s.u.s + at, to - at, &cp);
        if (!strips(r, cp, s.u.s + at, len, chars))
            break;
    }
    swl_tpl_charge(r, (from + s.n - to) / 16);
    return part(s, from, to);
}

int64_t swl_tpl_find(swl_tpl_run *r, swl_tpl_value s, swl_tpl_value sub, size_t from, size_t to, bool last)
{
    const char *p;
    size_t at;

    if (from > to || sub.n > to - from)
        return -1;
    if (!sub.n)
        return (int64_t)(last ? to : from);
    swl_tpl_charge(r, (to - from) / (last ? 64 : 256));
    if (!last) {
        p = memmem(s.u.s + from, to - from, sub.u.s, sub.n);
        return p ? p - s.u.s : -1;
    }
    for (at = to - sub.n + 1; at-- > from && !swl_tpl_failed(r);) {
        if (s.u.s[at] != *sub.u.s)
            continue;
        swl_tpl_charge(r, 1 + sub.n / 256);
        if (!memcmp(s.u.s + at, sub.u.s, sub.n))
            return (int64_t)at;
    }
    return -1;
}

swl_tpl_value swl_tpl_replace(swl_tpl_run *r, swl_tpl_value s, swl_tpl_value from, swl_tpl_value to, int64_t max)
{
    size_t mark = r->out_n, at = 0, step;
    int64_t hit;

    for (; max != 0 && !swl_tpl_failed(r); max--) {
        hit = swl_tpl_find(r, s, from, at, s.n, false);
        if (hit < 0)
            break;
        swl_tpl_put(r, s.u.s + at, (size_t)hit - at);
        swl_tpl_put(r, to.u.s, to.n);
        at = (size_t)hit + from.n;
        swl_tpl_charge(r, 1);
        if (from.n)
            continue;
        step = skip_chars(s, at, 1); /* an empty `from` stands before every character and at the end */
        if (step == at)
            break;
        swl_tpl_put(r, s.u.s + at, step - at);
        at = step;
    }
    if (at == 0 && r->out_n == mark)
        return s;
    if (at < s.n)
        swl_tpl_put(r, s.u.s + at, s.n - at);
    return swl_tpl_capture(r, mark);
}

/* ---- splitting --------------------------------------------------------------------------------------------------- */

/* A list that grows; in reverse order for splits from the right. */
typedef struct parts {
    swl_tpl_value *v;
    uint32_t n, cap;
} parts;

static void add_part(swl_tpl_run *r, parts *p, swl_tpl_value v)
{
    swl_tpl_value *more;

    if (p->n == p->cap) {
        p->cap = p->cap ? p->cap * 2 : 8;
        more = swl_tpl_alloc(r, p->cap, sizeof *more);
        if (more && p->n)
            memcpy(more, p->v, p->n * sizeof *more);
        p->v = more;
    }
    if (!swl_tpl_failed(r))
        p->v[p->n++] = v;
}

static swl_tpl_value parts_list(swl_tpl_run *r, parts *p, bool reverse)
{
    swl_tpl_value tmp;
    uint32_t i;

    if (swl_tpl_failed(r))
        return swl_tpl_seq(TPL_LIST, NULL, 0);
    for (i = 0; reverse && i < p->n / 2; i++) {
        tmp = p->v[i];
        p->v[i] = p->v[p->n - 1 - i];
        p->v[p->n - 1 - i] = tmp;
    }
    return swl_tpl_seq(TPL_LIST, p->v, p->n);
}

static swl_tpl_value split_by(swl_tpl_run *r, swl_tpl_value s, swl_tpl_value sep, int64_t max, bool from_right)
{
    size_t from = 0, to = s.n;
    parts p = {0};
    int64_t hit;

    for (; max != 0 && !swl_tpl_failed(r); max--) {
        swl_tpl_charge(r, 1);
        hit = swl_tpl_find(r, s, sep, from, to, from_right);
        if (hit < 0)
            break;
        if (from_right) {
            add_part(r, &p, part(s, (size_t)hit + sep.n, to));
            to = (size_t)hit;
        } else {
            add_part(r, &p, part(s, from, (size_t)hit));
            from = (size_t)hit + sep.n;
        }
    }
    add_part(r, &p, part(s, from, to));
    return parts_list(r, &p, from_right);
}

/* Up to the next white space, from the left or the right end of s. */
static swl_tpl_value word(swl_tpl_value s, bool from_right)
{
    size_t at = from_right ? s.n : 0, prev;
    int32_t cp;
    int len;

    while (from_right ? at > 0 : at < s.n) {
        prev = at;
        if (from_right)
            for (prev--; prev > 0 && (s.u.s[prev] & 0xc0) == 0x80; prev--)
                ;
        len = swl_tpl_utf8(s.u.s + prev, s.n - prev, &cp);
        if (swl_tpl_is_space(cp))
            break;
        at = from_right ? prev : at + (size_t)len;
    }
    return from_right ? part(s, at, s.n) : part(s, 0, at);
}

static swl_tpl_value split_words(swl_tpl_run *r, swl_tpl_value s, int64_t max, bool from_right)
{
    const swl_tpl_value blank = swl_tpl_none();
    parts p = {0};
    swl_tpl_value w;

    swl_tpl_charge(r, s.n / 16);
    for (;;) {
        swl_tpl_charge(r, 1);
        s = swl_tpl_strip(r, s, blank, !from_right, from_right);
        if (!s.n || max == 0 || swl_tpl_failed(r))
            break;
        w = word(s, from_right);
        add_part(r, &p, w);
        s = from_right ? part(s, 0, s.n - w.n) : part(s, w.n, s.n);
        max--;
    }
    if (s.n)
        add_part(r, &p, s);
    return parts_list(r, &p, from_right);
}

swl_tpl_value swl_tpl_split(swl_tpl_run *r, swl_tpl_value s, swl_tpl_value sep, int64_t max, bool from_right)
{
    if (sep.kind == TPL_NONE || sep.kind == TPL_MISSING)
        return split_words(r, s, max, from_right);
    if (sep.kind != TPL_STR)
        swl_tpl_fail(r, SWL_E_ARG, "split: the separator must be str or None, not %s", swl_tpl_type_name(sep));
    else if (!sep.n)
        swl_tpl_fail(r, SWL_E_ARG, "split: empty separator");
    return swl_tpl_failed(r) ? swl_tpl_undefined("") : split_by(r, s, sep, max, from_right);
}

static bool ends_line(int32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

swl_tpl_value swl_tpl_splitlines(swl_tpl_run *r, swl_tpl_value s, bool keep)
{
    size_t from = 0, at, end, len;
    parts p = {0};
    int32_t cp;

    for (at = 0; at < s.n && !swl_tpl_failed(r); at = end) {
        len = (size_t)swl_tpl_utf8(s.u.s + at, s.n - at, &cp);
        end = at + len;
        if (!ends_line(cp))
            continue;
        if (cp == '\r' && end < s.n && s.u.s[end] == '\n')
            end++;
        add_part(r, &p, part(s, from, keep ? end : at));
        from = end;
    }
    if (from < s.n)
        add_part(r, &p, part(s, from, s.n));
    swl_tpl_charge(r, s.n / 16);
    return parts_list(r, &p, false);
}

/* ---- case -------------------------------------------------------------------------------------------------------- */

/* Unicode's SpecialCasing.txt: characters whose upper case is several. The block U+1F80..1FAF is regular and is done
 * in code; utf8proc knows the rest. */
static const uint16_t upper_special[][4] = {
    {0x00df, 0x0053, 0x0053},         {0x0149, 0x02bc, 0x004e},         {0x01f0, 0x004a, 0x030c},
    {0x0390, 0x0399, 0x0308, 0x0301}, {0x03b0, 0x03a5, 0x0308, 0x0301}, {0x0587, 0x0535, 0x0552},
    {0x1e96, 0x0048, 0x0331},         {0x1e97, 0x0054, 0x0308},         {0x1e98, 0x0057, 0x030a},
    {0x1e99, 0x0059, 0x030a},         {0x1e9a, 0x0041, 0x02be},         {0x1f50, 0x03a5, 0x0313},
    {0x1f52, 0x03a5, 0x0313, 0x0300}, {0x1f54, 0x03a5, 0x0313, 0x0301}, {0x1f56, 0x03a5, 0x0313, 0x0342},
    {0x1fb2, 0x1fba, 0x0399},         {0x1fb3, 0x0391, 0x0399},         {0x1fb4, 0x0386, 0x0399},
    {0x1fb6, 0x0391, 0x0342},         {0x1fb7, 0x0391, 0x0342, 0x0399}, {0x1fbc, 0x0391, 0x0399},
    {0x1fc2, 0x1fca, 0x0399},         {0x1fc3, 0x0397, 0x0399},         {0x1fc4, 0x0389, 0x0399},
    {0x1fc6, 0x0397, 0x0342},         {0x1fc7, 0x0397, 0x0342, 0x0399}, {0x1fcc, 0x0397, 0x0399},
    {0x1fd2, 0x0399, 0x0308, 0x0300}, {0x1fd3, 0x0399, 0x0308, 0x0301}, {0x1fd6, 0x0399, 0x0342},
    {0x1fd7, 0x0399, 0x0308, 0x0342}, {0x1fe2, 0x03a5, 0x0308, 0x0300}, {0x1fe3, 0x03a5, 0x0308, 0x0301},
    {0x1fe4, 0x03a1, 0x0313},         {0x1fe6, 0x03a5, 0x0342},         {0x1fe7, 0x03a5, 0x0308, 0x0342},
    {0x1ff2, 0x1ffa, 0x0399},         {0x1ff3, 0x03a9, 0x0399},         {0x1ff4, 0x038f, 0x0399},
    {0x1ff6, 0x03a9, 0x0342},         {0x1ff7, 0x03a9, 0x0342, 0x0399}, {0x1ffc, 0x03a9, 0x0399},
    {0xfb00, 0x0046, 0x0046},         {0xfb01, 0x0046, 0x0049},         {0xfb02, 0x0046, 0x004c},
    {0xfb03, 0x0046, 0x0046, 0x0049}, {0xfb04, 0x0046, 0x0046, 0x004c}, {0xfb05, 0x0053, 0x0054},
    {0xfb06, 0x0053, 0x0054},         {0xfb13, 0x0544, 0x0546},         {0xfb14, 0x0544, 0x0535},
    {0xfb15, 0x0544, 0x053b},         {0xfb16, 0x054e, 0x0546},         {0xfb17, 0x0544, 0x053d},
};

static void put_cp(swl_tpl_run *r, int32_t cp)
{
    char s[4];

    swl_tpl_put(r, s, swl_tpl_utf8_put(s, cp));
}

static const uint16_t *special(int32_t cp)
{
    size_t i;

    for (i = 0; cp >= 0xdf && i < sizeof upper_special / sizeof *upper_special; i++)
        if (upper_special[i][0] == cp)
            return upper_special[i];
    return NULL;
}

static void put_upper(swl_tpl_run *r, int32_t cp)
{
    static const int32_t iota_base[] = {0x1f08, 0x1f28, 0x1f68};
    const uint16_t *s = special(cp);
    int i;

    if (cp >= 0x1f80 && cp <= 0x1faf) {
        put_cp(r, iota_base[(cp - 0x1f80) >> 4] + (cp & 7));
        put_cp(r, 0x399);
        return;
    }
    if (!s)
        put_cp(r, utf8proc_toupper(cp));
    for (i = 1; s && i < 4 && s[i]; i++)
        put_cp(r, s[i]);
}

/* Of the special ones, Latin and Armenian pairs keep their second half small, and Greek letters their iota below. */
static void put_title(swl_tpl_run *r, int32_t cp)
{
    const uint16_t *s = special(cp);
    bool small = cp == 0xdf || cp == 0x587 || cp >= 0xfb00;
    int i;

    if (!s || (s[2] == 0x399 && (cp & 7) != 2 && (cp & 15) != 4)) {
        put_cp(r, utf8proc_totitle(cp));
    } else {
        put_cp(r, s[1]);
        for (i = 2; i < 4 && s[i]; i++)
            put_cp(r, small ? utf8proc_tolower(s[i]) : s[i] == 0x399 ? 0x345 : s[i]);
    }
}

/* Letters that have a case by Unicode's properties Other_Uppercase and Other_Lowercase, not by their category. */
static const struct {
    int32_t from, to;
    bool upper;
} other_cased[] = {
    {0x00aa, 0x00aa, false},  {0x00ba, 0x00ba, false}, {0x02b0, 0x02b8, false},  {0x02c0, 0x02c1, false},
    {0x02e0, 0x02e4, false},  {0x0345, 0x0345, false}, {0x037a, 0x037a, false},  {0x1d2c, 0x1d6a, false},
    {0x1d78, 0x1d78, false},  {0x1d9b, 0x1dbf, false}, {0x2071, 0x2071, false},  {0x207f, 0x207f, false},
    {0x2090, 0x209c, false},  {0x2160, 0x216f, true},  {0x2170, 0x217f, false},  {0x24b6, 0x24cf, true},
    {0x24d0, 0x24e9, false},  {0x2c7c, 0x2c7d, false}, {0xa69c, 0xa69d, false},  {0xa770, 0xa770, false},
    {0xa7f8, 0xa7f9, false},  {0xab5c, 0xab5f, false}, {0x1f130, 0x1f149, true}, {0x1f150, 0x1f169, true},
    {0x1f170, 0x1f189, true},
};

/* 'u' upper, 'l' lower, 't' title, 0 without case. */
static char case_of(int32_t cp)
{
    utf8proc_category_t c = utf8proc_category(cp);
    size_t i;

    if (c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT)
        return c == UTF8PROC_CATEGORY_LU ? 'u' : c == UTF8PROC_CATEGORY_LL ? 'l' : 't';
    for (i = 0; cp >= 0xaa && i < sizeof other_cased / sizeof *other_cased; i++)
        if (cp >= other_cased[i].from && cp <= other_cased[i].to)
            return other_cased[i].upper ? 'u' : 'l';
    return 0;
}

static bool cased(int32_t cp)
{
    return case_of(cp) != 0;
}

static bool case_ignorable(int32_t cp)
{
    utf8proc_category_t c = utf8proc_category(cp);

    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF ||
           c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK || cp == '\'' || cp == '.' || cp == ':' ||
           cp == 0xb7 || cp == 0x2018 || cp == 0x2019 || cp == 0x2024 || cp == 0x2027;
}

/* A capital sigma is a final one after a letter and not before one, ignorable characters aside. */
static bool final_sigma(swl_tpl_value s, size_t from, size_t at)
{
    size_t i = at, j = at + 2;
    int32_t cp = 0;

    do {
        if (i == from)
            return false;
        for (i--; i > from && (s.u.s[i] & 0xc0) == 0x80; i--)
            ;
        swl_tpl_utf8(s.u.s + i, s.n - i, &cp);
    } while (case_ignorable(cp));
    if (!cased(cp))
        return false;
    for (; j < s.n; j = skip_chars(s, j, 1)) {
        swl_tpl_utf8(s.u.s + j, s.n - j, &cp);
        if (!case_ignorable(cp))
            return !cased(cp);
    }
    return true;
}

static void put_lower(swl_tpl_run *r, swl_tpl_value s, size_t from, size_t at, int32_t cp)
{
    if (cp == 0x130)
        swl_tpl_puts(r, "i\xcc\x87");
    else if (cp == 0x3a3)
        put_cp(r, final_sigma(s, from, at) ? 0x3c2 : 0x3c3);
    else
        put_cp(r, utf8proc_tolower(cp));
}

/* The title filter's words begin after these; str.title's words begin after anything that has no case. */
static bool divides_words(int32_t cp)
{
    return cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<' || swl_tpl_is_space(cp);
}

swl_tpl_value swl_tpl_recase(swl_tpl_run *r, swl_tpl_value s, swl_tpl_case how)
{
    size_t mark = r->out_n, at, len, from = 0;
    bool start = true;
    int32_t cp;

    for (at = 0; at < s.n && !swl_tpl_failed(r); at += len) {
        len = (size_t)swl_tpl_utf8(s.u.s + at, s.n - at, &cp);
        if (how == TPL_UPPER || (start && how == TPL_TITLE_FILTER))
            put_upper(r, cp);
        else if (start && (how == TPL_TITLE || how == TPL_CAPITALIZE))
            put_title(r, cp);
        else
            put_lower(r, s, from, at, cp);
        start = how == TPL_TITLE ? !cased(cp) : how == TPL_TITLE_FILTER && divides_words(cp);
        if (how == TPL_TITLE_FILTER && start)
            from = at + len;
        swl_tpl_charge(r, 1);
    }
    swl_tpl_value v = swl_tpl_capture(r, mark);
    v.flag = s.flag;
    return v;
}

bool swl_tpl_text_is(swl_tpl_value s, const char *property)
{
    utf8proc_category_t c;
    bool seen = false, ok;
    size_t at, len;
    int32_t cp;

    for (at = 0; at < s.n; at += len) {
        len = (size_t)swl_tpl_utf8(s.u.s + at, s.n - at, &cp);
        c = utf8proc_category(cp);
        if (!strcmp(property, "isupper") || !strcmp(property, "islower")) {
            if (!cased(cp))
                continue;
            ok = case_of(cp) == property[2];
        } else if (!strcmp(property, "isspace")) {
            ok = swl_tpl_is_space(cp);
        } else {
            bool digit = c == UTF8PROC_CATEGORY_ND,
                 number = digit || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
            bool letter = c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
            ok = !strcmp(property, "isalpha")     ? letter
                 : !strcmp(property, "isalnum")   ? letter || number
                 : !strcmp(property, "isnumeric") ? number
                                                  : digit;
        }
        if (!ok)
            return false;
        seen = true;
    }
    return seen;
}

swl_tpl_value swl_tpl_escape(swl_tpl_run *r, swl_tpl_value v)
{
    static const char from[] = "&<>\"'";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    size_t mark = r->out_n;
    const char *p;
    uint32_t i;

    if (v.kind == TPL_STR && v.flag)
        return v;
    v = swl_tpl_str(r, v);
    for (i = 0; i < v.n && !swl_tpl_failed(r); i++) {
        p = v.u.s[i] ? strchr(from, v.u.s[i]) : NULL;
        if (p)
            swl_tpl_puts(r, to[p - from]);
        else
            swl_tpl_put(r, v.u.s + i, 1);
    }
    v = swl_tpl_capture(r, mark);
    v.flag = 1;
    return v;
}
