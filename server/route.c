/* route.c: the table of what is served. */
#include <string.h>

#include "dialects.h"
#include "page.h"
#include "small.h"

/* clang-format off */
static const srv_route routes[] = {
    /* path, methods, label, dialect, versioned, bare, open, without_model, ollama, prefix, handle, prepare */
    {"/chat/completions", SRV_POST, "chat", SRV_OPENAI, true, true, false, false, false, false, NULL, srv_chat_prepare},
    {"/chat/completions/control", SRV_POST, "control", SRV_OPENAI, true, true, false, false, false, false, srv_control, NULL},
    {"/responses", SRV_POST, "responses", SRV_OPENAI, true, true, false, false, false, false, NULL, srv_responses_prepare},
    {"/responses/input_tokens", SRV_POST, "responses", SRV_OPENAI, true, true, false, false, false, false, NULL, srv_responses_count},
    {"/responses/", SRV_GET | SRV_POST | SRV_DELETE, "responses", SRV_OPENAI, true, true, false, true, false, true, srv_not_stored, NULL},
    {"/messages", SRV_POST, "messages", SRV_ANTHROPIC, true, false, false, false, false, false, NULL, srv_messages_prepare},
    {"/messages/count_tokens", SRV_POST, "count_tokens", SRV_ANTHROPIC, true, false, false, false, false, false, NULL, srv_messages_count},
    {"/completions", SRV_POST, "completions", SRV_OPENAI, true, true, false, false, false, false, NULL, srv_completions_prepare},
    {"/models", SRV_GET, "models", SRV_OPENAI, true, true, false, false, false, false, srv_models, NULL},
    {"/models/", SRV_GET, "models", SRV_OPENAI, true, true, false, false, false, true, srv_model, NULL},
    {"/health", SRV_GET, "health", SRV_OPENAI, true, true, true, true, false, false, srv_health, NULL},
    {"/metrics", SRV_GET, "metrics", SRV_OPENAI, false, true, false, false, false, false, srv_get_metrics, NULL},
    {"/props", SRV_GET, "props", SRV_OPENAI, false, true, false, false, false, false, srv_props, NULL},
    {"/slots", SRV_GET, "slots", SRV_OPENAI, false, true, false, false, false, false, srv_slots, NULL},
    {"/slots/", SRV_POST, "slots", SRV_OPENAI, false, true, false, false, false, true, NULL, srv_slot_action},
    {"/tokenize", SRV_POST, "tokenize", SRV_OPENAI, true, true, false, false, false, false, NULL, srv_tokenize},
    {"/detokenize", SRV_POST, "detokenize", SRV_OPENAI, true, true, false, false, false, false, NULL, srv_detokenize},
    {"/apply-template", SRV_POST, "apply-template", SRV_OPENAI, true, true, false, false, false, false, NULL, srv_apply_template},
    {"/embeddings", SRV_POST, "embeddings", SRV_OPENAI, true, true, false, true, false, false, srv_embeddings, NULL},
    {"/rerank", SRV_POST, "embeddings", SRV_OPENAI, true, true, false, true, false, false, srv_embeddings, NULL},
    {"/api/version", SRV_GET, "ollama", SRV_OLLAMA, false, true, false, true, true, false, srv_ollama_version, NULL},
    {"/api/tags", SRV_GET, "ollama", SRV_OLLAMA, false, true, false, false, true, false, srv_ollama_tags, NULL},
    {"/api/ps", SRV_GET, "ollama", SRV_OLLAMA, false, true, false, false, true, false, srv_ollama_ps, NULL},
    {"/api/show", SRV_POST, "ollama", SRV_OLLAMA, false, true, false, false, true, false, NULL, srv_ollama_show},
    {"/api/chat", SRV_POST, "ollama", SRV_OLLAMA, false, true, false, false, true, false, NULL, srv_ollama_chat},
    {"/api/generate", SRV_POST, "ollama", SRV_OLLAMA, false, true, false, false, true, false, NULL, srv_ollama_generate},
    {"/api/pull", SRV_POST, "ollama", SRV_OLLAMA, false, true, false, true, true, false, srv_ollama_pull, NULL},
    {"/api/embed", SRV_POST, "ollama", SRV_OLLAMA, false, true, false, true, true, false, srv_embeddings, NULL},
    {"/api/embeddings", SRV_POST, "ollama", SRV_OLLAMA, false, true, false, true, true, false, srv_embeddings, NULL},
    {"/api/v0/models", SRV_GET, "ollama", SRV_OPENAI, false, true, false, false, true, false, srv_lm_studio_models, NULL},
    {"/", SRV_GET, "page", SRV_OPENAI, false, true, true, true, false, true, srv_page, NULL},
};
/* clang-format on */

#define N_ROUTES (sizeof routes / sizeof routes[0])

static bool is_path(const srv_route *r, const char *path)
{
    size_t n = strlen(r->path);

    if (strncmp(path, r->path, n))
        return false;
    return r->prefix || !path[n] || (path[n] == '/' && !path[n + 1]);
}

static bool matches(const srv_server *s, const srv_route *r, const char *path)
{
    if (r->ollama && !s->opt.ollama)
        return false;
    if (r->handle == srv_page)
        return !strcmp(path, "/") || (!s->opt.no_web && swl_page_find(path));
    return (r->bare && is_path(r, path)) || (r->versioned && !strncmp(path, "/v1/", 4) && is_path(r, path + 3));
}

const char *srv_route_rest(const srv_route *r, const char *path)
{
    return (r->versioned && !strncmp(path, "/v1/", 4) ? path + 3 : path) + strlen(r->path);
}

const srv_route *srv_route_find(const srv_server *s, const char *path, const char *method, unsigned *allowed)
{
    unsigned wanted = !strcmp(method, "GET") || !strcmp(method, "HEAD") ? SRV_GET : !strcmp(method, "POST") ? SRV_POST :
                      !strcmp(method, "DELETE") ? SRV_DELETE : 0;

    *allowed = 0;
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (!matches(s, &routes[i], path))
            continue;
        if (routes[i].methods & wanted)
            return &routes[i];
        *allowed |= routes[i].methods;
    }
    return NULL;
}
