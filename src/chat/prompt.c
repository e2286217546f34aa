/*
 * prompt.c: messages to token ids, in four steps: normalise; put seals in (seal.h): into what others typed, and in the
 * place of answers whose tokens are known; render by the template; cut what was rendered at the added tokens, and
 * tokenise the stretches between them with nothing matched in them. So a typed "<|im_end|>" stays text, and a known
 * answer keeps its tokens.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "chat/engine.h"
#include "chat/json_in.h"
#include "chat/messages.h"
#include "text/tokenizer_impl.h"

#define TEXT_BYTES_MAX (UINT64_C(64) << 20)

typedef struct maker {
    swl_engine *e;
    const swl_request_options *o;
    swl_error *err;
    swl_seal seal;
    json_t *messages, *tools, *vars, *extra;
    swl_turn **turns; /* [n_turns] by message; NULL where the tokens are not known */
    size_t n_turns;
    /* out */
    swl_prompt *p;
    int32_t n_max;  /* room in p->ids */
    swl_sbuf text;  /* the prompt as it reads */
    swl_sbuf plain; /* what waits to be tokenised */
} maker;

static swl_status no_memory(maker *m)
{
    return swl_fail(m->err, SWL_E_NOMEM, "prompt: out of memory");
}

/* ---- reading the request ---- */

static swl_status check_size(maker *m, const char *text, const char *what)
{
    if (text && strlen(text) > TEXT_BYTES_MAX)
        return swl_fail(m->err, SWL_E_ARG, "%s: more than %u MiB", what, (unsigned)(TEXT_BYTES_MAX >> 20));
    return SWL_OK;
}

static swl_status read_json(maker *m, json_t **out, const char *text, const char *what)
{
    return text ? swl_json_in(out, text, strlen(text), &m->seal, what, m->err) : SWL_OK;
}

static swl_status read_inputs(maker *m)
{
    const swl_request_options *o = m->o;
    json_t *list = NULL;
    swl_status st = check_size(m, o->messages, "messages");

    if (!st)
        st = check_size(m, o->tools, "tools");
    if (!st)
        st = check_size(m, o->template_vars, "template variables");
    if (!st)
        st = read_json(m, &m->tools, o->tools, "tools");
    if (!st && json_is_null(m->tools)) {
        json_decref(m->tools);
        m->tools = NULL;
    }
    if (!st && m->tools)
        st = swl_tools_check(m->tools, m->err);
    if (!st)
        st = read_json(m, &m->extra, o->template_vars, "template variables");
    if (!st && m->extra && !json_is_object(m->extra))
        st = swl_fail(m->err, SWL_E_ARG, "template variables: expected an object");
    if (!st)
        st = read_json(m, &list, o->messages, "messages");
    if (!st)
        st = swl_messages_normalise(&m->messages, list, m->e->tpl.info.tool_calls_xml, &m->seal, m->err);
    json_decref(list);
    return st;
}

static const json_t *get(const json_t *obj, const char *key)
{
    return json_object_get(obj, key);
}

static bool is_role(const json_t *message, const char *role)
{
    return !strcmp(json_string_value(get(message, "role")), role);
}

/* ---- known answers ---- */

/* Walks the transcript; the last message of one that is to be continued is not a finished answer. */
static swl_status find_turns(maker *m)
{
    size_t n = json_array_size(m->messages);
    swl_status st = SWL_OK;

    m->turns = swl_calloc(n, sizeof *m->turns);
    if (!m->turns)
        return no_memory(m);
    m->n_turns = n;
    for (size_t i = 0; i < n && !st; i++) {
        const json_t *message = json_array_get(m->messages, i);

        st = swl_transcript_add(m->p->transcript, message, m->err);
        if (st || !is_role(message, "assistant") || (m->o->continue_final && i + 1 == n))
            continue;
        pthread_mutex_lock(&m->e->lock);
        m->turns[i] = swl_turns_find(&m->e->turns, message, m->p->transcript);
        pthread_mutex_unlock(&m->e->lock);
        if (m->turns[i]) /* what follows was said after the answer as it was, whatever the client left out */
            memcpy(m->p->transcript, m->turns[i]->transcript, SWL_TRANSCRIPT_BYTES);
    }
    return st;
}

static void release_turns(maker *m)
{
    pthread_mutex_lock(&m->e->lock);
    for (size_t i = 0; i < m->n_turns; i++)
        swl_turn_release(m->turns[i]);
    pthread_mutex_unlock(&m->e->lock);
    swl_free(m->turns);
}

static json_t *seal_string(const maker *m, swl_seal_kind kind, size_t i)
{
    char body[24];
    swl_sbuf b = {0};
    json_t *s;

    snprintf(body, sizeof body, "%zu", i);
    swl_seal_put(&m->seal, kind, body, strlen(body), &b);
    s = b.failed ? NULL : json_stringn(b.p, b.n);
    swl_sbuf_deinit(&b);
    return s;
}

/* The message with seals for its reasoning, and for its text and calls together; a new reference. */
static json_t *seal_turn(const maker *m, const json_t *message, const swl_turn *turn, size_t i)
{
    json_t *out = json_copy((json_t *)message);

    if (!out)
        return NULL;
    json_object_del(out, "tool_calls");
    json_object_del(out, "reasoning_content");
    if (json_object_set_new(out, "content", seal_string(m, SWL_SEAL_CONTENT, i)) ||
        (turn->reasoned && json_object_set_new(out, "reasoning_content", seal_string(m, SWL_SEAL_REASONING, i)))) {
        json_decref(out);
        return NULL;
    }
    return out;
}

/* ---- typed tags ---- */

typedef enum typed { TYPED_ALL, TYPED_SPECIAL } typed;

/* Puts a BREAK into every spelling of an added token in text[from..to). */
static void put_broken(const maker *m, const char *text, size_t from, size_t to, typed which, swl_sbuf *out)
{
    for (size_t i = from; i < to; i++) {
        const swl_added *a = swl_tokenizer_added_at(m->e->tokenizer, (const uint8_t *)text + i, to - i);

        swl_sbuf_putc(out, text[i]);
        if (a && (which == TYPED_ALL || swl_tokenizer_is_special(m->e->tokenizer, a->id)))
            swl_seal_put(&m->seal, SWL_SEAL_BREAK, NULL, 0, out);
    }
}

/* A question that is wholly <tool_response>...</tool_response> is a tool's result to the templates: its own tags stay.
 */
static void find_response(const char *text, size_t n, size_t *from, size_t *to)
{
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    const char *p = text;
    size_t n_p = n;

    *from = 0;
    *to = n;
    swl_trim(&p, &n_p);
    if (n_p < sizeof open + sizeof close - 2 || memcmp(p, open, sizeof open - 1) ||
        memcmp(p + n_p - (sizeof close - 1), close, sizeof close - 1))
        return;
    *from = (size_t)(p - text) + sizeof open - 1;
    *to = (size_t)(p - text) + n_p - (sizeof close - 1);
}

static json_t *break_string(const maker *m, const json_t *s, typed which, bool question)
{
    const char *text = json_string_value(s);
    size_t n = json_string_length(s), from = 0, to = n;
    swl_sbuf b = {0};
    json_t *out;

    if (!memchr(text, '<', n))
        return json_incref((json_t *)s);
    if (question)
        find_response(text, n, &from, &to);
    swl_sbuf_put(&b, text, from);
    put_broken(m, text, from, to, which, &b);
    swl_sbuf_put(&b, text + to, n - to);
    out = b.failed ? NULL : json_stringn(b.p ? b.p : "", b.n);
    swl_sbuf_deinit(&b);
    return out;
}

/* A copy of any value with its strings broken. Depth is bounded where the value was read. */
static json_t *break_value(const maker *m, const json_t *v, typed which)
{
    json_t *out, *item;
    const char *key;
    size_t i;

    if (json_is_string(v))
        return break_string(m, v, which, false);
    if (!json_is_array(v) && !json_is_object(v))
        return json_incref((json_t *)v);
    out = json_is_array(v) ? json_array() : json_object();
    if (json_is_array(v)) {
        json_array_foreach ((json_t *)v, i, item)
            json_array_append_new(out, break_value(m, item, which));
    } else {
        json_object_foreach ((json_t *)v, key, item)
            json_object_set_new(out, key, break_value(m, item, which));
    }
    return out;
}

static json_t *break_message(const maker *m, const json_t *message)
{
    typed which = is_role(message, "assistant") ? TYPED_SPECIAL : TYPED_ALL;
    json_t *out = break_value(m, message, which);
    const json_t *content = get(message, "content");

    if (out && is_role(message, "user"))
        json_object_set_new(out, "content", break_string(m, content, which, true));
    return out;
}

/* The end of the message that is to be continued. */
static swl_status seal_end(maker *m, json_t *message)
{
    const json_t *content = get(message, "content");
    swl_sbuf b = {0};
    swl_status st = SWL_OK;

    if (!is_role(message, "assistant") || get(message, "tool_calls"))
        return swl_fail(m->err, SWL_E_ARG, "messages[%zu]: only the text of an assistant's message can be continued",
                        json_array_size(m->messages) - 1);
    swl_sbuf_put(&b, json_string_value(content), json_string_length(content));
    swl_seal_put(&m->seal, SWL_SEAL_END, NULL, 0, &b);
    if (b.failed || json_object_set_new(message, "content", json_stringn(b.p, b.n)))
        st = no_memory(m);
    swl_sbuf_deinit(&b);
    return st;
}

/* m->messages becomes what the template sees. */
static swl_status seal_messages(maker *m)
{
    bool typed_is_text = !m->e->o.parse_special;
    size_t n = json_array_size(m->messages);
    json_t *list = json_array(), *tools;

    for (size_t i = 0; i < n; i++) {
        const json_t *message = json_array_get(m->messages, i);
        json_t *out = m->turns[i]     ? seal_turn(m, message, m->turns[i], i)
                      : typed_is_text ? break_message(m, message)
                                      : json_copy((json_t *)message);

        if (json_array_append_new(list, out)) {
            json_decref(list);
            return no_memory(m);
        }
    }
    json_decref(m->messages);
    m->messages = list;
    if (m->tools) {
        tools = typed_is_text ? break_value(m, m->tools, TYPED_ALL) : json_incref(m->tools);
        m->p->tools = m->tools;
        m->tools = tools;
    }
    return m->o->continue_final ? seal_end(m, json_array_get(list, n - 1)) : SWL_OK;
}

/* ---- what was rendered ---- */

static swl_status reserve(maker *m, int64_t n_more)
{
    int64_t n_max = (int64_t)m->p->n + n_more;
    int32_t *ids;

    if (n_max <= m->n_max)
        return SWL_OK;
    n_max += n_max / 2 + 64;
    if (n_max > INT32_MAX / 2)
        return swl_fail(m->err, SWL_E_BUDGET, "the prompt has more than %d tokens", INT32_MAX / 4);
    ids = swl_realloc(m->p->ids, (size_t)n_max, sizeof *ids);
    if (!ids)
        return no_memory(m);
    m->p->ids = ids;
    m->n_max = (int32_t)n_max;
    return SWL_OK;
}

static swl_status put_ids(maker *m, const int32_t *ids, int64_t n)
{
    swl_status st = reserve(m, n);

    if (!st && n)
        memcpy(m->p->ids + m->p->n, ids, (size_t)n * sizeof *ids);
    m->p->n += st ? 0 : (int32_t)n;
    return st;
}

/* Tokenises what waits. */
static swl_status flush(maker *m)
{
    int32_t *ids;
    int64_t n;
    swl_status st;

    if (m->plain.failed)
        return no_memory(m);
    if (!m->plain.n)
        return SWL_OK;
    st = swl_tokenizer_encode(m->e->tokenizer, m->plain.p, m->plain.n, SWL_ENCODE_PLAIN, &ids, &n, m->err);
    if (!st)
        st = put_ids(m, ids, n);
    swl_free(ids);
    swl_sbuf_put(&m->text, m->plain.p, m->plain.n);
    m->plain.n = 0;
    return st;
}

/* The tokens of an earlier answer, from `from` on. */
static swl_status put_turn(maker *m, const swl_turn *turn, int32_t from)
{
    char *text = NULL;
    size_t n = 0;
    swl_status st = flush(m);

    if (!st)
        st = put_ids(m, turn->ids + from, turn->n - from);
    if (!st)
        st = swl_tokenizer_decode(m->e->tokenizer, turn->ids + from, turn->n - from, false, &text, &n, m->err);
    if (!st)
        swl_sbuf_put(&m->text, text, n);
    swl_free(text);
    return st;
}

static bool ends_with(const swl_sbuf *b, const char *end)
{
    size_t n = strlen(end);

    return b->n >= n && !memcmp(b->p + b->n - n, end, n);
}

/* The template wrote the opening of the reasoning that the answer's own tokens begin with: takes it back. False: it did
 * not. */
static bool take_opening(maker *m, const swl_turn *turn)
{
    static const char tag[] = "<think>";
    bool own = turn->start == SWL_ANSWER_START_TEXT;

    if (turn->start == SWL_ANSWER_START_REASONING)
        return true;
    if (m->plain.n != 1 || *m->plain.p != '\n')
        return false;
    if (own && (!m->p->n || m->p->ids[m->p->n - 1] != m->e->id_think || !ends_with(&m->text, tag)))
        return false;
    m->plain.n = 0;
    if (own) {
        m->p->n--;
        m->text.n -= sizeof tag - 1;
    }
    return true;
}

static const swl_turn *turn_of(const maker *m, const char *body, size_t n)
{
    size_t i = 0;

    for (; n && *body >= '0' && *body <= '9'; body++, n--)
        i = i * 10 + (size_t)(*body - '0');
    return i < m->n_turns ? m->turns[i] : NULL;
}

/* A seal for reasoning; if the template goes on as expected, the answer's too. *taken: bytes behind the seal. */
static swl_status put_reasoning(maker *m, const swl_turn *turn, const char *rest, size_t n, size_t *taken)
{
    static const char closing[] = "\n</think>\n\n";
    size_t n_closing = sizeof closing - 1, length, n_body;
    swl_seal_kind kind;
    const char *body;

    *taken = 0;
    if (n > n_closing && !memcmp(rest, closing, n_closing)) {
        length = swl_seal_at(&m->seal, rest + n_closing, n - n_closing, &kind, &body, &n_body);
        if (length && kind == SWL_SEAL_CONTENT && turn_of(m, body, n_body) == turn && take_opening(m, turn)) {
            *taken = n_closing + length;
            return put_turn(m, turn, 0);
        }
    }
    swl_sbuf_put(&m->plain, turn->reasoning, turn->n_reasoning);
    return SWL_OK;
}

/* The visible part of an answer. Where a token holds the border, its text and calls as they were written. */
static swl_status put_content(maker *m, const swl_turn *turn)
{
    int32_t *ids;
    int64_t n_ids;
    char *text;
    size_t n;
    const char *p;
    swl_status st;

    if (turn->n_answer >= 0)
        return put_turn(m, turn, turn->n_answer);
    st = swl_tokenizer_decode(m->e->tokenizer, turn->ids, turn->n, false, &text, &n, m->err);
    if (st)
        return st;
    p = strstr(text, "</think>");
    p = p ? p + strlen("</think>") : text;
    n -= (size_t)(p - text);
    swl_trim(&p, &n);
    st = flush(m);
    if (!st)
        st = swl_tokenizer_encode(m->e->tokenizer, p, n, 0, &ids, &n_ids, m->err);
    if (!st) {
        st = put_ids(m, ids, n_ids);
        swl_sbuf_put(&m->text, p, n);
        swl_free(ids);
    }
    swl_free(text);
    return st;
}

/* Digits, without the quotes that a template may have put around them. *taken: bytes behind the seal. */
static void put_number(maker *m, const char *digits, size_t n, const char *rest, size_t n_rest, size_t *taken)
{
    char before = m->plain.n ? m->plain.p[m->plain.n - 1] : 0;
    bool quoted = (before == '"' || before == '\'') && n_rest && *rest == before;

    m->plain.n -= quoted;
    *taken = quoted;
    swl_sbuf_put(&m->plain, digits, n);
}

/* One seal; *end: nothing of what follows belongs to the prompt. */
static swl_status put_seal(maker *m, swl_seal_kind kind, const char *body, size_t n_body, const char *rest,
                           size_t n_rest, size_t *taken, bool *end)
{
    const swl_turn *turn = turn_of(m, body, n_body);

    *taken = 0;
    if (kind == SWL_SEAL_REASONING && turn)
        return put_reasoning(m, turn, rest, n_rest, taken);
    if (kind == SWL_SEAL_CONTENT && turn)
        return put_content(m, turn);
    if (kind == SWL_SEAL_NUMBER)
        put_number(m, body, n_body, rest, n_rest, taken);
    *end = kind == SWL_SEAL_END;
    return SWL_OK;
}

static swl_status assemble(maker *m, const char *text, size_t n)
{
    const swl_tokenizer *t = m->e->tokenizer;
    size_t i = 0, n_body, length, taken;
    bool end = false;
    swl_status st = SWL_OK;

    while (i < n && !st && !end) {
        swl_seal_kind kind;
        const char *body;
        const swl_added *a;

        if ((length = swl_seal_at(&m->seal, text + i, n - i, &kind, &body, &n_body))) {
            i += length;
            st = put_seal(m, kind, body, n_body, text + i, n - i, &taken, &end);
            i += taken;
        } else if ((a = swl_tokenizer_added_at(t, (const uint8_t *)text + i, n - i))) {
            st = flush(m);
            if (!st)
                st = put_ids(m, &a->id, 1);
            swl_sbuf_put(&m->text, a->content, (size_t)a->n_bytes);
            i += (size_t)a->n_bytes;
        } else {
            swl_sbuf_putc(&m->plain, text[i++]);
        }
    }
    if (!st)
        st = flush(m);
    if (!st && m->o->continue_final && !end)
        st = swl_fail(m->err, SWL_E_ARG, "the chat template does not show the message that is to be continued");
    return st;
}

/* ---- all of it ---- */

static swl_status render(maker *m, char **text, size_t *n)
{
    swl_status st;

    *text = NULL;
    m->vars = json_pack("{s:O, s:b}", "messages", m->messages, "add_generation_prompt", !m->o->continue_final);
    if (!m->vars || (m->tools && json_array_size(m->tools) && json_object_set(m->vars, "tools", m->tools)))
        return no_memory(m);
    st = swl_chat_template_vars(&m->e->tpl, m->vars, m->o->think, !m->e->o.strip_thinking, m->extra, m->err);
    return st ? st : swl_template_render(m->e->tpl.compiled, m->vars, text, n, m->err);
}

/* By the ids, which nobody can type: whether the last answer to come has a <think> without its </think>. */
static swl_answer_start start_of(const swl_engine *e, const swl_prompt *p)
{
    for (int32_t i = p->n - 1; i >= 0; i--) {
        if (p->ids[i] == e->id_think_end || p->ids[i] == e->id_start)
            return SWL_ANSWER_START_TEXT;
        if (p->ids[i] == e->id_think)
            return i == p->n - 1 ? SWL_ANSWER_START_THINK : SWL_ANSWER_START_REASONING;
    }
    return SWL_ANSWER_START_TEXT;
}

static swl_status take_text(maker *m)
{
    swl_sbuf_putc(&m->text, 0);
    if (m->text.failed)
        return no_memory(m);
    m->p->text = m->text.p;
    m->text = (swl_sbuf){0};
    return SWL_OK;
}

static swl_status from_messages(maker *m)
{
    char *text = NULL;
    size_t n;
    swl_status st = read_inputs(m);

    if (!st)
        st = find_turns(m);
    if (!st)
        st = seal_messages(m);
    if (!st)
        st = render(m, &text, &n);
    if (!st)
        st = assemble(m, text, n);
    if (!st)
        st = take_text(m);
    if (!st)
        m->p->start = start_of(m->e, m->p);
    swl_free(text);
    return st;
}

static swl_status from_text(maker *m)
{
    int64_t n;
    swl_status st;

    if (strlen(m->o->text) > TEXT_BYTES_MAX)
        return swl_fail(m->err, SWL_E_ARG, "text: more than %u MiB", (unsigned)(TEXT_BYTES_MAX >> 20));
    st = swl_tokenizer_encode(m->e->tokenizer, m->o->text, strlen(m->o->text), 0, &m->p->ids, &n, m->err);
    m->p->n = st ? 0 : (int32_t)n;
    swl_sbuf_puts(&m->text, m->o->text);
    return st ? st : take_text(m);
}

static swl_status from_ids(maker *m)
{
    int32_t vocab = m->e->model->config->vocab;

    for (int32_t i = 0; i < m->o->n_ids; i++)
        if (m->o->ids[i] < 0 || m->o->ids[i] >= vocab)
            return swl_fail(m->err, SWL_E_ARG, "ids[%d]: token id %d is not in 0 to %d", i, m->o->ids[i], vocab - 1);
    return put_ids(m, m->o->ids, m->o->n_ids);
}

swl_status swl_prompt_make(swl_prompt *p, swl_engine *e, const swl_request_options *o, swl_error *err)
{
    maker m = {.e = e, .o = o, .err = err, .p = p};
    swl_status st;

    swl_seal_init(&m.seal);
    st = o->messages ? from_messages(&m) : o->text ? from_text(&m) : from_ids(&m);
    if (m.turns)
        release_turns(&m);
    if (!p->tools)
        p->tools = json_incref(m.tools);
    json_decref(m.messages);
    json_decref(m.tools);
    json_decref(m.vars);
    json_decref(m.extra);
    swl_sbuf_deinit(&m.text);
    swl_sbuf_deinit(&m.plain);
    return st;
}

void swl_prompt_deinit(swl_prompt *p)
{
    swl_free(p->ids);
    swl_free(p->text);
    json_decref(p->tools);
}
