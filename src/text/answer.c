/*
 * answer.c: the parser's life, its input, and its two ground states: reasoning and answer text. Both pass text on up to
 * the next '<' that may begin a tag.
 */
#include "text/answer.h"

#include <string.h>

#include "base/mem.h"
#include "text/answer_impl.h"
#include "text/call_value.h"

/* ---- input ---- */

swl_tag_match swl_answer_tag(const swl_answer *a, size_t from, const char *tag, bool final)
{
    size_t n = swl_answer_n_in(a) - from, len = strlen(tag);

    if (n >= len)
        return memcmp(swl_answer_in(a) + from, tag, len) ? SWL_TAG_NO : SWL_TAG_YES;
    return final || memcmp(swl_answer_in(a) + from, tag, n) ? SWL_TAG_NO : SWL_TAG_PART;
}

size_t swl_answer_white(const swl_answer *a, size_t from)
{
    size_t n = from, end = swl_answer_n_in(a);

    while (n < end && swl_json_is_space(swl_answer_in(a)[n]))
        n++;
    return n - from;
}

void swl_answer_take(swl_answer *a, size_t n)
{
    if (n)
        a->line_start = swl_answer_in(a)[n - 1] == '\n';
    a->at += n;
}

void swl_answer_take_raw(swl_answer *a, size_t n)
{
    if (n)
        swl_sbuf_put(&a->raw, swl_answer_in(a), n);
    swl_answer_take(a, n);
}

static void pass(swl_answer *a, swl_answer_kind kind, size_t n)
{
    if (!n)
        return;
    swl_answer_emit(a, kind, swl_answer_in(a), n);
    swl_answer_take(a, n);
}

/* Bytes before the next '<'. */
static size_t before_tag(const swl_answer *a)
{
    size_t n = swl_answer_n_in(a);
    const char *tag = n ? memchr(swl_answer_in(a), '<', n) : NULL;

    return tag ? (size_t)(tag - swl_answer_in(a)) : n;
}

/* ---- reasoning ---- */

/* An own <think> at the beginning, once, with white space before it. */
static swl_tag_match own_think(swl_answer *a, bool final)
{
    size_t white = swl_answer_white(a, 0);

    if (white == swl_answer_n_in(a))
        return final ? SWL_TAG_NO : SWL_TAG_PART;
    return swl_answer_tag(a, white, "<think>", final);
}

static void enter_reasoning(swl_answer *a, size_t n)
{
    swl_answer_settle(a, NULL);
    swl_answer_take(a, n);
    a->fresh = false;
    a->drop_newline = true;
    a->step = a->home = swl_answer_reasoning;
}

static void leave_reasoning(swl_answer *a, size_t n)
{
    swl_answer_settle(a, NULL);
    swl_answer_take(a, n);
    a->fresh = false;
    a->line_start = true;
    a->skip_white = true;
    a->step = a->home = swl_answer_content;
}

static swl_tag_match tool_call_in_reasoning(const swl_answer *a, bool final)
{
    swl_tag_match m = a->opt.calls ? swl_answer_tag(a, 0, "<tool_call>", final) : SWL_TAG_NO;

    /* Prose about the tag is spelled like it; a call begins with the token. */
    if (m == SWL_TAG_YES && a->opt.tool_call_id >= 0 && a->tag_end != a->at + strlen("<tool_call>"))
        return SWL_TAG_NO;
    return m;
}

/* Returns true at a place where the beginning is dealt with. */
static bool begin_reasoning(swl_answer *a, bool final, bool *wait)
{
    swl_tag_match m;

    *wait = !swl_answer_n_in(a);
    if (*wait)
        return false;
    if (a->drop_newline) {
        a->drop_newline = false;
        swl_answer_take(a, *swl_answer_in(a) == '\n');
        return false;
    }
    if (!a->fresh)
        return true;
    m = own_think(a, final);
    *wait = m == SWL_TAG_PART;
    if (m == SWL_TAG_YES)
        enter_reasoning(a, swl_answer_white(a, 0) + strlen("<think>"));
    else if (m == SWL_TAG_NO)
        a->fresh = false;
    return false;
}

bool swl_answer_reasoning(swl_answer *a, bool final)
{
    swl_tag_match end, call;
    bool wait;

    if (!begin_reasoning(a, final, &wait))
        return !wait;
    pass(a, SWL_ANSWER_REASONING, before_tag(a));
    if (!swl_answer_n_in(a))
        return false;
    end = swl_answer_tag(a, 0, "</think>", final);
    call = tool_call_in_reasoning(a, final);
    if (end == SWL_TAG_PART || call == SWL_TAG_PART)
        return false;
    if (end == SWL_TAG_YES)
        leave_reasoning(a, strlen("</think>"));
    else if (call == SWL_TAG_YES)
        swl_answer_call_starts(a, "<tool_call>");
    else
        pass(a, SWL_ANSWER_REASONING, 1);
    return true;
}

/* ---- answer text ---- */

/* <function=NAME> without its <tool_call>: only at the start of a line, and only for a tool that exists. */
static swl_tag_match bare_function(const swl_answer *a, bool final)
{
    const size_t n_tag = strlen("<function=");
    swl_tag_match m = a->opt.calls && a->line_start ? swl_answer_tag(a, 0, "<function=", final) : SWL_TAG_NO;
    size_t n = swl_answer_n_in(a), end = n_tag;
    bool found;

    if (m != SWL_TAG_YES)
        return m;
    while (end < n && end < n_tag + SWL_ANSWER_NAME_MAX && !strchr("<>\n", swl_answer_in(a)[end]))
        end++;
    if (end == n)
        return final ? SWL_TAG_NO : SWL_TAG_PART;
    if (swl_answer_in(a)[end] != '>')
        return SWL_TAG_NO;
    swl_tool_parameters(a->tools, swl_answer_in(a) + n_tag, end - n_tag, &found);
    return found ? SWL_TAG_YES : SWL_TAG_NO;
}

bool swl_answer_content(swl_answer *a, bool final)
{
    swl_tag_match m;

    if (!swl_answer_n_in(a))
        return false;
    if (a->fresh && a->opt.think) {
        m = own_think(a, final);
        if (m == SWL_TAG_YES)
            enter_reasoning(a, swl_answer_white(a, 0) + strlen("<think>"));
        if (m != SWL_TAG_NO)
            return m == SWL_TAG_YES;
    }
    a->fresh = false;
    pass(a, SWL_ANSWER_TEXT, a->opt.calls ? before_tag(a) : swl_answer_n_in(a));
    if (!swl_answer_n_in(a))
        return false;
    m = swl_answer_tag(a, 0, "<tool_call>", final);
    if (m == SWL_TAG_YES) {
        swl_answer_call_starts(a, "<tool_call>");
        return true;
    }
    if (m == SWL_TAG_NO && (m = bare_function(a, final)) == SWL_TAG_YES) {
        swl_answer_call_starts(a, "<function=");
        return true;
    }
    if (m == SWL_TAG_PART)
        return false;
    pass(a, SWL_ANSWER_TEXT, 1);
    return true;
}

/* ---- life ---- */

void swl_answer_options_init(swl_answer_options *opt)
{
    memset(opt, 0, sizeof *opt);
    opt->think = opt->calls = true;
    opt->tool_call_id = -1;
}

/* The last place of a word in text[0..n), or NULL. */
static const char *find_last(const char *text, size_t n, const char *word)
{
    size_t len = strlen(word);

    for (size_t i = n < len ? 0 : n - len + 1; i > 0; i--)
        if (!memcmp(text + i - 1, word, len))
            return text + i - 1;
    return NULL;
}

swl_answer_start swl_answer_start_of(const char *prompt, size_t n)
{
    const char *end = prompt + n, *turn = find_last(prompt, n, "<|im_start|>assistant\n"), *open, *close;

    if (!turn)
        return SWL_ANSWER_START_TEXT;
    open = find_last(turn, (size_t)(end - turn), "<think>");
    close = find_last(turn, (size_t)(end - turn), "</think>");
    if (!open || (close && close > open))
        return SWL_ANSWER_START_TEXT;
    return open + strlen("<think>") == end ? SWL_ANSWER_START_THINK : SWL_ANSWER_START_REASONING;
}

swl_status swl_answer_create(swl_answer **out, const swl_answer_options *opt, swl_error *err)
{
    swl_answer *a = swl_calloc(1, sizeof *a);
    swl_status st;

    *out = NULL;
    if (!a)
        return swl_fail(err, SWL_E_NOMEM, "answer: out of memory");
    st = swl_stop_strings_create(&a->stop, opt->stop, opt->n_stop, err);
    if (st) {
        swl_answer_free(a);
        return st;
    }
    a->opt = *opt;
    a->tools = json_incref((json_t *)opt->tools);
    swl_detok_init(&a->detok);
    a->step = opt->start == SWL_ANSWER_START_TEXT ? swl_answer_content : swl_answer_reasoning;
    a->home = a->step;
    a->fresh = a->line_start = true;
    a->drop_newline = opt->start == SWL_ANSWER_START_THINK;
    a->stopped_by = -1;
    swl_sbuf_putc(&a->in, 0); /* its memory exists from here on */
    a->in.n = 0;
    if (a->in.failed) {
        swl_answer_free(a);
        return swl_fail(err, SWL_E_NOMEM, "answer: out of memory");
    }
    *out = a;
    return SWL_OK;
}

void swl_answer_free(swl_answer *a)
{
    if (!a)
        return;
    json_decref(a->tools);
    swl_stop_strings_free(a->stop);
    swl_sbuf *const bufs[] = {&a->in,       &a->passed,    &a->white,      &a->raw,      &a->args,   &a->stray,
                              &a->json.key, &a->json.name, &a->json.other, &a->xml.keys, &a->xml.key};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        swl_sbuf_deinit(bufs[i]);
    swl_free(a);
}

/* ---- pushing ---- */

static bool out_of_memory(const swl_answer *a)
{
    return a->in.failed || a->passed.failed || a->white.failed || a->raw.failed || a->args.failed || a->stray.failed ||
           a->json.key.failed || a->json.name.failed || a->json.other.failed || a->xml.keys.failed || a->xml.key.failed;
}

static swl_status status_of(const swl_answer *a, swl_error *err)
{
    if (out_of_memory(a))
        return swl_fail(err, SWL_E_NOMEM, "answer: out of memory");
    return a->cancelled ? swl_fail(err, SWL_E_CANCELLED, "answer: stopped by the caller") : SWL_OK;
}

static swl_status run(swl_answer *a, bool final, swl_error *err)
{
    while (!out_of_memory(a) && !a->cancelled && a->stopped_by < 0 && a->step(a, final))
        ;
    swl_sbuf_drop(&a->in, a->at);
    a->tag_end = a->tag_end > a->at ? a->tag_end - a->at : 0;
    a->at = 0;
    return status_of(a, err);
}

static void decode(swl_answer *a, const char *bytes, size_t n)
{
    enum { PIECE = 256 };
    char text[3 * (PIECE + 4)];
    size_t part;

    for (; n; bytes += part, n -= part) {
        part = n < PIECE ? n : PIECE;
        swl_sbuf_put(&a->in, text, swl_detok_push(&a->detok, bytes, part, text));
    }
}

swl_status swl_answer_push(swl_answer *a, int32_t id, const char *bytes, size_t n, swl_error *err)
{
    if (a->stopped_by >= 0)
        return SWL_OK;
    decode(a, bytes, n);
    if (id >= 0 && id == a->opt.tool_call_id)
        a->tag_end = a->in.n;
    return run(a, false, err);
}

swl_status swl_answer_push_text(swl_answer *a, const char *text, size_t n, swl_error *err)
{
    return swl_answer_push(a, -1, text, n, err);
}

swl_status swl_answer_finish(swl_answer *a, swl_error *err)
{
    char tail[12];
    swl_status st;

    if (a->stopped_by >= 0)
        return SWL_OK;
    swl_sbuf_put(&a->in, tail, swl_detok_flush(&a->detok, tail));
    st = run(a, true, err);
    if (st || a->stopped_by >= 0)
        return st;
    swl_answer_emit_rest(a);
    return status_of(a, err);
}

int32_t swl_answer_stopped_by(const swl_answer *a)
{
    return a->stopped_by;
}

bool swl_answer_in_reasoning(const swl_answer *a)
{
    return a->home == swl_answer_reasoning;
}

int32_t swl_answer_n_calls(const swl_answer *a)
{
    return a->n_good;
}
