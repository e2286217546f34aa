/*
 * grammar_text.c: machines that read text: JSON strings with every escape, keys other than those that are declared, and
 * the free text of a string in the XML form of calls, up to what ends it there. All of them read well-formed UTF-8
 * alone.
 */
#include <string.h>

#include "text/grammar_impl.h"

/* ---- UTF-8: where inside a character ---- */

enum { U_WHOLE, U_1, U_2, U_3, U_E0, U_ED, U_F0, U_F4, U_BAD };

static uint8_t utf8_first(uint8_t byte)
{
    if (byte < 0x80)
        return U_WHOLE;
    if (byte >= 0xC2 && byte <= 0xDF)
        return U_1;
    if (byte >= 0xE0 && byte <= 0xEF)
        return byte == 0xE0 ? U_E0 : byte == 0xED ? U_ED : U_2;
    if (byte >= 0xF0 && byte <= 0xF4)
        return byte == 0xF0 ? U_F0 : byte == 0xF4 ? U_F4 : U_3;
    return U_BAD;
}

/* The Unicode Standard, table 3-7. */
static uint8_t utf8_next(uint8_t u, uint8_t byte)
{
    static const struct {
        uint8_t lo, hi, to;
    } rows[] = {[U_1] = {0x80, 0xBF, U_WHOLE}, [U_2] = {0x80, 0xBF, U_1},  [U_3] = {0x80, 0xBF, U_2},
                [U_E0] = {0xA0, 0xBF, U_1},    [U_ED] = {0x80, 0x9F, U_1}, [U_F0] = {0x90, 0xBF, U_2},
                [U_F4] = {0x80, 0x8F, U_2}};

    return byte >= rows[u].lo && byte <= rows[u].hi ? rows[u].to : U_BAD;
}

static bool is_hex(uint8_t c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
}

/* ---- JSON strings ---- */

enum { S_BEGIN, S_BODY, S_ESCAPE, S_HEX, S_LOW, S_LOW_ESCAPE, S_END };

/* Digits of an escape so far, as far as they matter: the first was d; the first two were d8 to db: half a pair. */
enum { H_PLAIN, H_D, H_HIGH, H_LOW };

typedef struct string_state {
    uint8_t at, utf8, n_hex, hex;
} string_state;

static bool string_hex(string_state *s, uint8_t c)
{
    uint8_t low = c | 0x20;

    if (!is_hex(c))
        return false;
    if (s->hex == H_LOW) { /* the second half of a pair: dc to df */
        if ((s->n_hex == 0 && low != 'd') || (s->n_hex == 1 && (low < 'c' || low > 'f')))
            return false;
    } else if (s->n_hex == 0) {
        s->hex = low == 'd' ? H_D : H_PLAIN;
    } else if (s->n_hex == 1 && s->hex == H_D) {
        if (low >= 'c' && low <= 'f')
            return false;
        s->hex = c == '8' || c == '9' || low == 'a' || low == 'b' ? H_HIGH : H_PLAIN;
    }
    if (++s->n_hex < 4)
        return true;
    s->at = s->hex == H_HIGH ? S_LOW : S_BODY;
    s->n_hex = s->hex = 0;
    return true;
}

static bool string_body(string_state *s, uint8_t c)
{
    if (s->utf8) {
        s->utf8 = utf8_next(s->utf8, c);
        return s->utf8 != U_BAD;
    }
    if (c == '"')
        s->at = S_END;
    else if (c == '\\')
        s->at = S_ESCAPE;
    else
        s->utf8 = utf8_first(c);
    return c >= 0x20 && s->utf8 != U_BAD;
}

static bool string_step(const void *arg, const void *from, uint8_t c, void *to)
{
    string_state *s = to;

    (void)arg;
    (void)from;
    switch (s->at) {
    case S_BEGIN:
        s->at = S_BODY;
        return c == '"';
    case S_BODY:
        return string_body(s, c);
    case S_ESCAPE:
        s->at = c == 'u' ? S_HEX : S_BODY;
        return c == 'u' || (c && strchr("\"\\/bfnrt", c));
    case S_HEX:
        return string_hex(s, c);
    case S_LOW:
        s->at = S_LOW_ESCAPE;
        return c == '\\';
    case S_LOW_ESCAPE:
        s->at = S_HEX;
        s->hex = H_LOW;
        return c == 'u';
    default:
        return false;
    }
}

static bool string_accept(const void *arg, const void *state)
{
    (void)arg;
    return ((const string_state *)state)->at == S_END;
}

int32_t swl_text_string(swl_bytes *b, int64_t *work)
{
    static const swl_machine m = {.n_key = sizeof(string_state), .step = string_step, .accept = string_accept};
    string_state start = {.at = S_BEGIN};

    return swl_bytes_machine(b, &m, &start, work);
}

/* ---- other keys ---- */

/* A key is written with the escapes that it needs and no others, so that a declared one cannot come back in disguise.
 */
enum { K_BEGIN, K_BODY, K_ESCAPE, K_U, K_U0, K_U00, K_U000, K_U001, K_END };

typedef struct key_state {
    int32_t word; /* in the tree of declared names, -1: it is none of them */
    uint8_t at, utf8, n, reserved;
} key_state;

static bool key_escape(key_state *s, uint8_t c)
{
    switch (s->at) {
    case K_ESCAPE:
        s->at = c == 'u' ? K_U : K_BODY;
        return c == 'u' || (c && strchr("\"\\bfnrt", c));
    case K_U:
        s->at = K_U0;
        return c == '0';
    case K_U0:
        s->at = K_U00;
        return c == '0';
    case K_U00:
        s->at = c == '0' ? K_U000 : K_U001;
        return c == '0' || c == '1';
    case K_U000: /* what has no short form: not \b \t \n \f \r */
        s->at = K_BODY;
        return c && strchr("01234567bef", c);
    default:
        s->at = K_BODY;
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    }
}

static bool key_step(const void *arg, const void *from, uint8_t c, void *to)
{
    const swl_bytes *names = arg;
    key_state *s = to;
    string_state body;

    (void)from;
    s->word = s->word < 0 ? -1 : swl_bytes_step(names, s->word, c);
    if (s->at == K_BEGIN) {
        s->at = K_BODY;
        return c == '"';
    }
    if (s->at == K_END)
        return false;
    if (s->at != K_BODY)
        return key_escape(s, c);
    body = (string_state){.at = S_BODY, .utf8 = s->utf8};
    if (!string_body(&body, c))
        return false;
    s->utf8 = body.utf8;
    s->at = body.at == S_END ? K_END : body.at == S_ESCAPE ? K_ESCAPE : K_BODY;
    return s->at != K_END || s->word < 0 || !names->states[s->word].accept;
}

static bool key_accept(const void *arg, const void *state)
{
    (void)arg;
    return ((const key_state *)state)->at == K_END;
}

static bool parameter_step(const void *arg, const void *from, uint8_t c, void *to)
{
    const swl_bytes *names = arg;
    key_state *s = to;

    (void)from;
    s->word = s->word < 0 ? -1 : swl_bytes_step(names, s->word, c);
    return s->n++ < 64 && c && ((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || strchr("_-.", c));
}

static bool parameter_accept(const void *arg, const void *state)
{
    const swl_bytes *names = arg;
    const key_state *s = state;

    return s->n && (s->word < 0 || !names->states[s->word].accept);
}

static int32_t other(swl_bytes *b, swl_machine *m, const swl_word *names, size_t n, int64_t *work)
{
    swl_bytes tree = {0};
    key_state start = {.word = swl_bytes_words(&tree, names, n), .at = K_BEGIN};
    int32_t out = -1;

    if (tree.failed) {
        b->failed = b->failed ? b->failed : tree.failed;
    } else {
        m->arg = &tree;
        m->n_key = sizeof start;
        out = swl_bytes_machine(b, m, &start, work);
    }
    swl_bytes_deinit(&tree);
    return out;
}

int32_t swl_text_other_key(swl_bytes *b, const swl_word *names, size_t n, int64_t *work)
{
    swl_machine m = {.step = key_step, .accept = key_accept};

    return other(b, &m, names, n, work);
}

int32_t swl_text_other_parameter(swl_bytes *b, const swl_word *names, size_t n, int64_t *work)
{
    swl_machine m = {.step = parameter_step, .accept = parameter_accept};

    return other(b, &m, names, n, work);
}

/* ---- free text in the XML form ---- */

/*
 * The reader of calls (answer_xml.c) has nothing but tags to see where a value ends: so a value does not hold what
 * would make it end elsewhere. A tag is "clear" when it begins a line, or when only white space stands between it and a
 * </parameter> before it. In a value no tag is clear, except </parameter> behind a </parameter> in the same line; nor
 * does
 * </function> stand before </tool_call>, or that before <tool_call>. And text that is exactly "null" would be read as
 * null.
 */
enum { TAG_PARAMETER, TAG_END_FUNCTION, TAG_END_CALL, TAG_CALL, TAG_FUNCTION, TAG_END_PARAMETER, N_TAGS };

static const char *const tags[N_TAGS] = {"<parameter=", "</function>", "</tool_call>",
                                         "<tool_call>", "<function=",  "</parameter>"};

enum { NULL_NOT = 7, T_END = 1 };

typedef struct text_state {
    uint8_t end;
    uint8_t utf8;
    uint8_t open; /* set of tags that may be under way */
    uint8_t at;   /* bytes of them so far */
    uint8_t line; /* the tag, or what comes next, begins a line */
    uint8_t last; /* 1 + the tag that only white space has followed; 0: none */
    uint8_t null; /* letters of "null", if there was nothing else; NULL_NOT */
    uint8_t tail; /* characters that may belong to "\n</parameter>" */
} text_state;

/* A whole tag was read. False: it may not stand here. */
static bool text_tag(text_state *s, int tag)
{
    bool line = s->line, clear = line || s->last == 1 + TAG_END_PARAMETER;
    int before = s->last - 1;

    s->open = s->at = s->line = 0;
    s->last = (uint8_t)(1 + tag);
    if (tag == TAG_END_PARAMETER && line) {
        bool good = s->null != 4;
        uint8_t tail = s->tail;

        memset(s, 0, sizeof *s);
        s->end = T_END;
        s->tail = tail;
        return good;
    }
    s->tail = 0;
    s->null = NULL_NOT;
    if (tag == TAG_END_PARAMETER)
        return true;
    return !clear && !(tag == TAG_END_CALL && before == TAG_END_FUNCTION) &&
           !(tag == TAG_CALL && before == TAG_END_CALL);
}

typedef enum text_taken { TEXT_BAD, TEXT_TAKEN, TEXT_PLAIN } text_taken;

/* Inside of what may be a tag. PLAIN: it is none, and c is yet to be read. */
static text_taken text_in_tag(text_state *s, uint8_t c)
{
    uint8_t open = 0;

    for (int i = 0; i < N_TAGS; i++)
        if (s->open >> i & 1 && (uint8_t)tags[i][s->at] == c)
            open |= (uint8_t)(1 << i);
    if (!open) {
        s->open = s->at = s->line = s->last = s->tail = 0;
        s->null = NULL_NOT;
        return TEXT_PLAIN;
    }
    s->open = open;
    s->at++;
    s->tail = open >> TAG_END_PARAMETER & 1 && s->line ? (uint8_t)(s->tail + 1) : 0;
    for (int i = 0; i < N_TAGS; i++)
        if (open >> i & 1 && !tags[i][s->at])
            return text_tag(s, i) ? TEXT_TAKEN : TEXT_BAD;
    return TEXT_TAKEN;
}

static void text_null(text_state *s, uint8_t c)
{
    if (s->null == 4 && c == '\n' && !s->line)
        return;
    s->null = s->null < 4 && (c | 0x20) == "null"[s->null] ? (uint8_t)(s->null + 1) : NULL_NOT;
}

static bool text_plain(text_state *s, uint8_t c)
{
    if (c == '<') {
        s->open = (1 << N_TAGS) - 1;
        s->at = 1;
        s->tail = s->line ? (uint8_t)(s->tail + 1) : 0;
        if (!s->line || (s->null && s->null != 4))
            s->null = NULL_NOT;
        return true;
    }
    if (s->null != NULL_NOT)
        text_null(s, c);
    s->line = c == '\n';
    s->tail = s->line;
    if (c != ' ' && c != '\t' && c != '\r' && c != '\n')
        s->last = 0;
    s->utf8 = utf8_first(c);
    return s->utf8 != U_BAD && c;
}

static bool text_step(const void *arg, const void *from, uint8_t c, void *to)
{
    text_state *s = to;
    text_taken taken;

    (void)arg;
    (void)from;
    if (s->end)
        return false;
    if (s->utf8) {
        s->utf8 = utf8_next(s->utf8, c);
        return s->utf8 != U_BAD;
    }
    taken = s->at ? text_in_tag(s, c) : TEXT_PLAIN;
    return taken == TEXT_PLAIN ? text_plain(s, c) : taken == TEXT_TAKEN;
}

static bool text_accept(const void *arg, const void *state)
{
    (void)arg;
    return ((const text_state *)state)->end;
}

static uint8_t text_tail(const void *arg, const void *state)
{
    (void)arg;
    return ((const text_state *)state)->tail;
}

int32_t swl_text_free(swl_bytes *b, bool may_be_null, int64_t *work)
{
    static const swl_machine m = {
        .n_key = sizeof(text_state), .step = text_step, .accept = text_accept, .tail = text_tail};
    text_state start = {.line = 1, .null = may_be_null ? NULL_NOT : 0};

    return swl_bytes_machine(b, &m, &start, work);
}
