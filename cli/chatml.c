/* chatml.c: messages to ids. */
#include "chatml.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"

#define TEMPLATE_BYTES_MAX (1 << 20)

/* Whether DIR/name holds the word; false as well when there is no such file. */
static bool file_mentions(const char *dir, const char *name, const char *word, bool *exists)
{
    char path[4096], *text = calloc(1, TEMPLATE_BYTES_MAX + 1);
    bool found = false;
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "rb");
    *exists = f != NULL;
    if (f && text && fread(text, 1, TEMPLATE_BYTES_MAX, f) > 0)
        found = strstr(text, word);
    if (f)
        fclose(f);
    free(text);
    return found;
}

/* Templates that can switch thinking off write an empty thought when it is off. */
static bool can_switch_thinking(const char *dir)
{
    bool exists, found = file_mentions(dir, "chat_template.jinja", "enable_thinking", &exists);

    return exists ? found : file_mentions(dir, "tokenizer_config.json", "enable_thinking", &exists);
}

swl_status chatml_init(chatml *c, const swl_tokenizer *t, const char *dir, swl_error *err)
{
    c->tokenizer = t;
    if (swl_tokenizer_special(t, "<|im_start|>") < 0 || swl_tokenizer_special(t, "<|im_end|>") < 0)
        return fail(err, SWL_E_UNSUPPORTED, "the tokenizer of %s has no <|im_start|> and <|im_end|>: not a chat model", dir);
    c->empty_thought = swl_tokenizer_special(t, "</think>") >= 0 && can_switch_thinking(dir);
    return SWL_OK;
}

static swl_status encode(const chatml *c, id_list *to, const char *text, size_t n, uint32_t flags, swl_error *err)
{
    int32_t *ids = NULL;
    int64_t n_ids = 0;
    swl_status st = swl_tokenizer_encode(c->tokenizer, text, n, flags, &ids, &n_ids, err);

    if (!st)
        st = id_list_append(to, ids, n_ids, err);
    swl_free(ids);
    return st;
}

static swl_status encode_marked(const chatml *c, id_list *to, const char *text, swl_error *err)
{
    return encode(c, to, text, strlen(text), 0, err);
}

swl_status chatml_message(const chatml *c, id_list *to, const char *role, const char *text, swl_error *err)
{
    char head[64];
    size_t n;
    swl_status st;

    text += strspn(text, " \t\r\n\v\f");
    for (n = strlen(text); n && isspace((unsigned char)text[n - 1]);)
        n--;
    snprintf(head, sizeof head, "<|im_start|>%s\n", role);
    st = encode_marked(c, to, head, err);
    if (!st)
        st = encode(c, to, text, n, SWL_ENCODE_PLAIN, err);
    return st ? st : encode_marked(c, to, "<|im_end|>\n", err);
}

swl_status chatml_open_answer(const chatml *c, id_list *to, swl_error *err)
{
    return encode_marked(c, to, c->empty_thought ? "<|im_start|>assistant\n<think>\n\n</think>\n\n"
                                                 : "<|im_start|>assistant\n", err);
}

static bool is_blank(const chatml *c, int32_t id)
{
    int32_t n;
    const char *p = swl_tokenizer_token(c->tokenizer, id, &n);

    for (int32_t i = 0; p && i < n; i++) {
        if (!isspace((unsigned char)p[i]))
            return false;
    }
    return true;
}

swl_status chatml_answer(const chatml *c, id_list *to, const int32_t *ids, int32_t n, swl_error *err)
{
    int32_t end_of_thought = swl_tokenizer_special(c->tokenizer, "</think>"), begin = 0;
    swl_status st = encode_marked(c, to, "<|im_start|>assistant\n", err);

    for (int32_t i = 0; i < n; i++) {
        if (ids[i] == end_of_thought)
            begin = i + 1;
    }
    while (begin < n && is_blank(c, ids[begin]))
        begin++;
    while (n > begin && is_blank(c, ids[n - 1]))
        n--;
    if (!st)
        st = id_list_append(to, ids + begin, n - begin, err);
    return st ? st : encode_marked(c, to, "<|im_end|>\n", err);
}
