/*
 * A body for one of the endpoints (the first byte says which): it becomes requests, an answer, or an error of a client's
 * with a message; and JSON that was read keeps its text.
 */
#include "fuzz/fuzz.h"

#include <string.h>

#include "dialects.h"
#include "small.h"

static srv_server server;

static bool (*const prepare[])(srv_job *j, srv_error *e) = {
    srv_chat_prepare,   srv_responses_prepare, srv_messages_prepare, srv_completions_prepare, srv_ollama_chat, srv_ollama_generate,
    srv_apply_template, srv_tokenize,          srv_detokenize,       srv_messages_count,
};
#define N_ENDPOINTS (sizeof prepare / sizeof prepare[0])

static void open_server(void)
{
    swl_model_options mo;
    swl_engine_options eo;
    swl_error err;

    if (server.model.engine)
        return;
    swl_server_options_init(&server.opt);
    server.limits = (srv_limits){.body = 1 << 20, .held = SIZE_MAX, .answer = SIZE_MAX};
    swl_model_options_init(&mo);
    swl_engine_options_init(&eo);
    CHECK(!swl_model_open(&server.model.model, &mo, &err));
    CHECK(!swl_tokenizer_open(&server.model.tokenizer, "", &err));
    eo.model = server.model.model;
    eo.tokenizer = server.model.tokenizer;
    CHECK(!swl_engine_open(&server.model.engine, &eo, &err));
    swl_model_info_get(server.model.model, &server.info);
    swl_template_info_get(server.model.engine, &server.template_info);
    swl_sampling_init(&server.sampling);
    server.model.id = "fuzz";
    server.model.dir = "fuzz";
}

static void check_json(const srv_json *j, const char *begin, const char *end)
{
    size_t n = 0;

    CHECK(j->raw >= begin && j->raw + j->n_raw <= end && j->n_raw);
    for (const srv_json *c = j->child; c; c = c->next, n++) {
        CHECK(!c->key == (j->type == SRV_ARRAY));
        check_json(c, j->raw, j->raw + j->n_raw);
    }
    CHECK(n == j->n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    srv_job *j;
    srv_error e = {0};
    bool ok;

    open_server();
    j = calloc(1, sizeof *j);
    if (!size || !j) {
        free(j);
        return 0;
    }
    j->server = &server;
    j->gzip = data[0] & 0x80;
    srv_add(&j->body, (const char *)data + 1, size - 1);
    ok = prepare[(data[0] & 0x7f) % N_ENDPOINTS](j, &e);
    if (j->doc.root && !e.http)
        check_json(j->doc.root, j->doc.text, j->doc.text + strlen(j->doc.text) + size);
    if (ok) {
        CHECK(!e.http && (j->encoder ? j->n_choices > 0 && j->choices[j->n_choices - 1].request : j->answer.n > 0));
    } else {
        CHECK(e.http >= 400 && e.http < 500 && e.message[0] && e.type);
    }
    srv_job_free(j);
    return 0;
}
