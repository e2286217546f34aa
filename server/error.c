/* error.c: errors as clients get them. */
#include "srv.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool srv_fail(srv_error *e, int http, const char *type, const char *code, const char *format, ...)
{
    va_list ap;

    *e = (srv_error){.http = http, .type = type, .code = code};
    va_start(ap, format);
    vsnprintf(e->message, sizeof e->message, format, ap);
    va_end(ap);
    return false;
}

bool srv_invalid(srv_error *e, const char *param, const char *format, ...)
{
    va_list ap;

    *e = (srv_error){.http = 400, .type = "invalid_request_error", .code = "invalid_value"};
    snprintf(e->param, sizeof e->param, "%s", param);
    va_start(ap, format);
    vsnprintf(e->message, sizeof e->message, format, ap);
    va_end(ap);
    return false;
}

bool srv_no_memory(srv_error *e)
{
    srv_fail(e, 503, "unavailable_error", NULL, "out of memory");
    e->retry_after = 2;
    return false;
}

/* The library's message, which names file and place; where the file lies is nobody's business. */
static void put_fault(char *to, size_t size, const swl_error *err)
{
    const char *slash = strrchr(err->file, '/'), *name = slash ? slash + 1 : err->file;
    const char *at = err->file[0] ? strstr(err->message, err->file) : NULL;

    if (at)
        snprintf(to, size, "%.*s%s%s", (int)(at - err->message), err->message, name, at + strlen(err->file));
    else if (*name && !strstr(err->message, name))
        snprintf(to, size, "%.400s (%.200s, offset %lld)", err->message, name, (long long)err->offset);
    else
        snprintf(to, size, "%.699s", err->message);
}

bool srv_library(srv_error *e, const swl_error *err, const char *param)
{
    switch (err->code) {
    case SWL_E_NOMEM:
        return srv_no_memory(e);
    case SWL_E_ARG:
    case SWL_E_UNSUPPORTED:
        return srv_invalid(e, param, "%s", err->message);
    default:
        srv_fail(e, 500, "server_error", NULL, "%s", "");
        put_fault(e->message, sizeof e->message, err);
        return false;
    }
}

static const char *anthropic_type(const srv_error *e)
{
    switch (e->http) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
        return "overloaded_error";
    default:
        return e->http >= 500 ? "api_error" : "invalid_request_error";
    }
}

static void anthropic_error(srv_text *t, const srv_error *e, const char *request_id)
{
    srv_puts(t, "{\"type\":\"error\"");
    srv_open(t, "error", '{');
    srv_str(t, "type", anthropic_type(e));
    srv_key(t, "message");
    if (e->n_ctx) {
        srv_printf(t, "\"prompt is too long: %d tokens > %d maximum\"", e->n_prompt, e->n_ctx);
    } else {
        srv_puts(t, "\"");
        if (e->param[0]) {
            srv_put_json_part(t, e->param, strlen(e->param));
            srv_puts(t, ": ");
        }
        srv_put_json_part(t, e->message, strlen(e->message));
        srv_puts(t, "\"");
    }
    srv_close(t, '}');
    srv_str(t, "request_id", request_id);
    srv_close(t, '}');
}

void srv_error_json(srv_text *t, const srv_error *e, srv_dialect d, const char *request_id)
{
    if (d == SRV_ANTHROPIC) {
        anthropic_error(t, e, request_id);
        return;
    }
    if (d == SRV_OLLAMA) {
        srv_puts(t, "{");
        srv_str(t, "error", e->message);
        srv_puts(t, "}");
        return;
    }
    srv_puts(t, "{\"error\":{");
    srv_str(t, "message", e->message);
    srv_str(t, "type", e->type);
    srv_str(t, "param", e->param[0] ? e->param : NULL);
    srv_str(t, "code", e->http == 405 ? NULL : e->code);
    if (e->n_ctx) {
        srv_int(t, "n_prompt_tokens", e->n_prompt);
        srv_int(t, "n_ctx", e->n_ctx);
    }
    srv_puts(t, "}}");
}
