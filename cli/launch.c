/*
 * launch.c: swiftlet launch: what a client needs to know of a server that runs. Printed, or with --write put into the client's
 * own file, of which a copy is kept. What else the file holds stays; a file that is not understood is left alone.
 */
#define _GNU_SOURCE
#define _DARWIN_C_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"
#include "output.h"
#include "remote.h"

#define FILE_BYTES_MAX (4 << 20)

enum { PATH_BYTES = 4096, NAMED_BYTES = PATH_BYTES + 64 }; /* of a path, and of one with an end of ours */

typedef enum form { FORM_JSON, FORM_TOML, FORM_OTHER } form;

/* $U: the server's address; $M: the model's name; $C: its context; $K: the key. */
typedef struct client_row {
    const char *name, *where, *text;
    form form;
    const char *dir_from, *dir; /* the folder: that of a variable, if it is set, else below the home directory */
    const char *below;          /* the file in it */
    const char *written;        /* NULL: text */
} client_row;

static const client_row clients[] = {
    {"codex", "~/.codex/config.toml",
     "model = \"$M\"\nmodel_provider = \"swiftlet\"\nmodel_context_window = $C\n\n[model_providers.swiftlet]\nname = \"swiftlet\"\n"
     "base_url = \"$U/v1\"\nwire_api = \"responses\"\n",
     FORM_TOML, "CODEX_HOME", ".codex", "config.toml", NULL},
    {"claude", "the environment",
     "export ANTHROPIC_BASE_URL=$U\nexport ANTHROPIC_AUTH_TOKEN=$K\nexport ANTHROPIC_MODEL=$M\n"
     "export CLAUDE_CODE_AUTO_COMPACT_WINDOW=$C\nexport CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1\n"
     "export CLAUDE_CODE_ATTRIBUTION_HEADER=0\n",
     FORM_JSON, "CLAUDE_CONFIG_DIR", ".claude", "settings.json",
     "{\"env\": {\"ANTHROPIC_BASE_URL\": \"$U\", \"ANTHROPIC_AUTH_TOKEN\": \"$K\", \"ANTHROPIC_MODEL\": \"$M\", "
     "\"CLAUDE_CODE_AUTO_COMPACT_WINDOW\": \"$C\", \"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC\": \"1\", "
     "\"CLAUDE_CODE_ATTRIBUTION_HEADER\": \"0\"}}"},
    {"opencode", "opencode.json",
     "{\n  \"provider\": {\n    \"swiftlet\": {\n      \"npm\": \"@ai-sdk/openai-compatible\",\n      \"options\": {\"baseURL\": \"$U/v1\", "
     "\"apiKey\": \"$K\"},\n      \"models\": {\"$M\": {\"limit\": {\"context\": $C, \"output\": $C}}}\n    }\n  },\n"
     "  \"model\": \"swiftlet/$M\"\n}\n",
     FORM_JSON, "XDG_CONFIG_HOME", ".config", "opencode/opencode.json", NULL},
    {"pi", "models.json of pi",
     "{\"providers\": {\"swiftlet\": {\"baseUrl\": \"$U/v1\", \"apiKey\": \"$K\", \"api\": \"openai-completions\", "
     "\"models\": [{\"id\": \"$M\"}]}}}\n",
     FORM_JSON, NULL, ".pi/agent", "models.json", NULL},
    {"zed", "settings.json of Zed",
     "{\"language_models\": {\"openai_compatible\": {\"swiftlet\": {\"api_url\": \"$U/v1\", "
     "\"available_models\": [{\"name\": \"$M\", \"max_tokens\": $C}]}}}}\n",
     FORM_JSON, "XDG_CONFIG_HOME", ".config", "zed/settings.json", NULL},
    {"continue", "config.yaml of Continue",
     "models:\n  - name: $M\n    provider: vllm\n    model: $M\n    apiBase: $U/v1\n    apiKey: $K\n",
     FORM_OTHER, NULL, ".continue", "config.yaml",
     "name: swiftlet\nversion: 0.0.1\nschema: v1\nmodels:\n  - name: $M\n    provider: vllm\n    model: $M\n    apiBase: $U/v1\n    apiKey: $K\n"},
};
enum { N_CLIENTS = sizeof clients / sizeof clients[0] };

/* A string of JSON, TOML or YAML between the quotes of the text; names that need escapes are rare enough to be refused. */
static bool is_plain(const char *s)
{
    for (; *s; s++) {
        if ((unsigned char)*s < 0x20 || strchr("\"\\$`'", *s))
            return false;
    }
    return true;
}

static char *fill_in(const char *text, const char *url, const char *model, const char *key, json_int_t context)
{
    char *out = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&out, &n);

    for (const char *p = text; f && *p; p++) {
        if (*p != '$')
            fputc(*p, f);
        else if (*++p == 'C')
            fprintf(f, "%lld", (long long)context);
        else
            fputs(*p == 'U' ? url : *p == 'M' ? model : key, f);
    }
    if (f)
        fclose(f);
    return out;
}

/* ---- files ---- */

static swl_status find_path(const client_row *row, char path[PATH_BYTES], swl_error *err)
{
    const char *dir = row->dir_from ? getenv(row->dir_from) : NULL, *home = getenv("HOME");
    char *real;
    int n;

    if (dir && *dir)
        n = snprintf(path, PATH_BYTES, "%s/%s", dir, row->below);
    else if (home && *home)
        n = snprintf(path, PATH_BYTES, "%s/%s/%s", home, row->dir, row->below);
    else
        return fail(err, SWL_E_NOT_FOUND, "launch --write: HOME is not set");
    if (n >= PATH_BYTES)
        return fail(err, SWL_E_ARG, "launch --write: the path of the file is too long");
    real = realpath(path, NULL);
    if (real && strlen(real) < PATH_BYTES) /* who keeps it elsewhere, by a link, goes on doing so */
        strcpy(path, real);
    free(real);
    return SWL_OK;
}

/* What the file holds; *text NULL: there is none. */
static swl_status load(const char *path, char **text, swl_error *err)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    *text = NULL;
    if (!f)
        return errno == ENOENT ? SWL_OK : fail(err, SWL_E_IO, "%s cannot be read: %s", path, strerror(errno));
    *text = calloc(FILE_BYTES_MAX + 1, 1);
    n = *text ? fread(*text, 1, FILE_BYTES_MAX, f) : 0;
    fclose(f);
    if (*text && n < FILE_BYTES_MAX && strlen(*text) == n)
        return SWL_OK;
    free(*text);
    *text = NULL;
    return fail(err, SWL_E_UNSUPPORTED, "%s is too large, or no text; put it in by hand", path);
}

static void make_dirs(const char *path)
{
    char part[PATH_BYTES];

    for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(p - path), path);
        mkdir(part, 0700); /* what cannot be made is seen when the file is */
    }
}

/* Under another name first, readable by its owner alone, because there may be a key in it. */
static swl_status store(const char *path, const char *text, swl_error *err)
{
    char tmp[NAMED_BYTES + 40];
    mode_t mask = umask(077);
    bool ok;
    FILE *f;

    snprintf(tmp, sizeof tmp, "%s.tmp.%ld", path, (long)getpid());
    f = fopen(tmp, "wbx");
    umask(mask);
    ok = f && fputs(text, f) >= 0 && !fflush(f) && !fsync(fileno(f));
    ok = f && !fclose(f) && ok;
    if (ok && !rename(tmp, path))
        return SWL_OK;
    if (f)
        unlink(tmp);
    return fail(err, SWL_E_IO, "%s cannot be written: %s", path, strerror(errno));
}

/* Under a name that nothing has yet. */
static swl_status keep_copy(const char *path, const char *text, char copy[NAMED_BYTES], swl_error *err)
{
    snprintf(copy, NAMED_BYTES, "%s.before-swiftlet", path);
    for (int i = 2; i < 1000 && !access(copy, F_OK); i++)
        snprintf(copy, NAMED_BYTES, "%s.before-swiftlet-%d", path, i);
    return store(copy, text, err);
}

/* ---- old and new ---- */

static swl_status merge_json(const char *path, const char *old, const char *text, char **out, swl_error *err)
{
    json_error_t fault;
    json_t *have = json_loads(old && *old ? old : "{}", JSON_REJECT_DUPLICATES, &fault), *add = json_loads(text, 0, NULL);
    bool ok = json_is_object(have) && add && !json_object_update_recursive(have, add);

    *out = ok ? json_dumps(have, JSON_INDENT(2)) : NULL;
    if (*out && (*out = realloc(*out, strlen(*out) + 2)))
        strcat(*out, "\n");
    ok = *out != NULL;
    json_decref(add);
    if (!ok)
        fail(err, SWL_E_UNSUPPORTED, "%s is not plain JSON (%s at line %d), so it is left alone; put this in by hand:\n%s", path,
             have ? "no object" : fault.text, have ? 1 : fault.line, text);
    json_decref(have);
    return ok ? SWL_OK : SWL_E_UNSUPPORTED;
}

static bool begins_key(const char *line, const char *key)
{
    size_t n = strlen(key);

    line += strspn(line, " \t");
    return !strncmp(line, key, n) && (line[n] == ' ' || line[n] == '=' || line[n] == '\t');
}

/* Lines of the text up to its first table go before everything, its table behind; what they replace is left out. */
static swl_status merge_toml(const char *path, const char *old, const char *text, char **out, swl_error *err)
{
    static const char *const keys[] = {"model", "model_provider", "model_context_window"};
    const char *table = strchr(text, '['), *line, *end;
    bool top = true, ours = false, first = true;
    size_t n = 0;
    FILE *f;

    *out = NULL;
    if (old && (strstr(old, "\"\"\"") || strstr(old, "'''")))
        return fail(err, SWL_E_UNSUPPORTED, "%s has texts of several lines, so it is left alone; put this in by hand:\n%s", path, text);
    f = open_memstream(out, &n);
    if (!f)
        return fail(err, SWL_E_NOMEM, "out of memory");
    fwrite(text, 1, (size_t)(table - text), f);
    for (line = old ? old : ""; *line; line = end) {
        bool drop = false;

        end = strchr(line, '\n') ? strchr(line, '\n') + 1 : line + strlen(line);
        if (line[strspn(line, " \t")] == '[') {
            top = false;
            ours = !strncmp(line + strspn(line, " \t"), table, strcspn(table, "]") + 1);
        }
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            drop |= top && begins_key(line, keys[i]);
        if (drop || ours || (first && *line == '\n'))
            continue; /* and empty lines at the beginning, which would grow in number */
        first = false;
        fwrite(line, 1, (size_t)(end - line), f);
    }
    fprintf(f, "%s%s", old && *old && old[strlen(old) - 1] != '\n' ? "\n" : "", table);
    fclose(f);
    return *out ? SWL_OK : fail(err, SWL_E_NOMEM, "out of memory");
}

static bool has_line(const char *text, const char *line, size_t n)
{
    for (const char *p = text; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        if (!strncmp(p, line, n) && (!p[n] || p[n] == '\n'))
            return true;
    }
    return false;
}

/* Lines of `from` that `to` has not. */
static void show_lines(char sign, const char *from, const char *to)
{
    for (const char *p = from; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        int n = (int)strcspn(p, "\n");

        if (n && !has_line(to, p, (size_t)n))
            note("%c %.*s", sign, n, p);
    }
}

static swl_status write_out(const client_row *row, const char *text, swl_error *err)
{
    char path[PATH_BYTES], copy[NAMED_BYTES] = "", *old = NULL, *merged = NULL;
    swl_status st = find_path(row, path, err);

    if (!st)
        st = load(path, &old, err);
    if (!st && row->form == FORM_OTHER && old)
        st = fail(err, SWL_E_UNSUPPORTED, "%s is there already, so it is left alone; put this in by hand:\n%s", path, text);
    if (!st)
        st = row->form == FORM_JSON ? merge_json(path, old, text, &merged, err) :
             row->form == FORM_TOML ? merge_toml(path, old, text, &merged, err) : SWL_OK;
    if (!st && !merged && !(merged = strdup(text)))
        st = fail(err, SWL_E_NOMEM, "out of memory");
    if (!st && old && !strcmp(old, merged)) {
        note("%s says so already", path);
    } else if (!st) {
        show_lines('-', old, merged);
        show_lines('+', merged, old ? old : "");
        make_dirs(path);
        if (old)
            st = keep_copy(path, old, copy, err);
        if (!st)
            st = store(path, merged, err);
        if (!st)
            note("written to %s%s%s", path, *copy ? "; as it was before: " : "", copy);
    }
    free(old);
    free(merged);
    return st;
}

/* ---- the command ---- */

static swl_status tell(const client_row *row, const arguments *a, const json_t *model, swl_error *err)
{
    const char *key = a->values[OPT_API_KEY].n_list ? a->values[OPT_API_KEY].list[0] : "none";
    const char *id = json_string_value(json_object_get(model, "id")), *url = opt_text(a, OPT_URL);
    bool writes = opt_on(a, OPT_WRITE);
    char *text;
    swl_status st = SWL_OK;

    id = id ? id : "swiftlet";
    if (!is_plain(id) || !is_plain(url) || !is_plain(key))
        return fail(err, SWL_E_UNSUPPORTED, "the model's name, the address or the key has characters that have to be escaped");
    text = fill_in(writes && row->written ? row->written : row->text, url, id, key,
                   json_integer_value(json_object_get(model, "max_model_len")));
    if (!text)
        return fail(err, SWL_E_NOMEM, "out of memory");
    if (writes) {
        st = write_out(row, text, err);
    } else {
        if (!opt_on(a, OPT_QUIET))
            note("for %s:", row->where);
        out_printf("%s", text);
    }
    free(text);
    return st;
}

swl_status run_launch(const arguments *a, swl_error *err)
{
    const char *names[N_CLIENTS], *near;
    const client_row *row = NULL;
    json_t *models = NULL;
    swl_status st;

    for (int i = 0; i < N_CLIENTS; i++) {
        names[i] = clients[i].name;
        if (!strcmp(clients[i].name, a->operands[0]))
            row = &clients[i];
    }
    near = nearest_name(a->operands[0], names, N_CLIENTS);
    if (!row)
        return fail(err, SWL_E_ARG, "unknown client \"%s\"%s%s; usage: swiftlet launch %s", a->operands[0],
                    near ? "; did you mean " : "", near ? near : "", commands[CMD_LAUNCH].operands);
    st = remote_get(&models, a, "/v1/models", err);
    if (!st)
        st = tell(row, a, json_array_get(json_object_get(models, "data"), 0), err);
    json_decref(models);
    return st;
}
