/* config.c: swiftlet info --config: every setting with its value and origin, and the folders in use. */
#include "config.h"

#include "commands.h"
#include "output.h"
#include "places.h"
#include "settings.h"

/* What the model publishes for an option; false when it has no say in it. */
static bool models_value(option_id id, const swl_sampling *model, char dst[32])
{
    switch (id) {
    case OPT_TEMP:
        snprintf(dst, 32, "%g", (double)model->temperature);
        return true;
    case OPT_TOP_K:
        snprintf(dst, 32, "%d", model->top_k);
        return true;
    case OPT_TOP_P:
        snprintf(dst, 32, "%g", (double)model->top_p);
        return true;
    case OPT_MIN_P:
        snprintf(dst, 32, "%g", (double)model->min_p);
        return true;
    default:
        return false;
    }
}

static void origin_name(char dst[ORIGIN_MAX], option_id id, const option_value *v)
{
    settings file;
    swl_error ignored;

    snprintf(dst, ORIGIN_MAX, "%s", v->origin == FROM_BUILTIN ? "built in" : v->origin == FROM_TYPED ? "/set" : "option");
    if (v->origin == FROM_ENVIRONMENT)
        option_environment_name(dst, id);
    else if (v->origin == FROM_FILE && !settings_read(&file, &ignored))
        snprintf(dst, ORIGIN_MAX, "%s:%d", file.path, v->line);
}

void config_value(option_id id, const option_value *v, const swl_sampling *model, const char **text, char origin[ORIGIN_MAX])
{
    static char published[32];
    const option_row *row = &option_rows[id];

    origin_name(origin, id, v);
    if (v->set && (v->origin != FROM_BUILTIN || !row->builtin_help)) {
        *text = row->type == TYPE_SWITCH ? (v->on ? "on" : "off") : id == OPT_API_KEY ? "(not shown)" : v->text;
    } else if (!v->set && model && models_value(id, model, published)) {
        *text = published;
        snprintf(origin, ORIGIN_MAX, "the model");
    } else {
        *text = row->builtin_help ? row->builtin_help : "";
    }
}

typedef struct report {
    json_t *rows;            /* NULL: as text */
    arguments *of;           /* [CMD_COUNT] what each command would run with */
    settings file;
    const swl_sampling *model; /* NULL: none given */
} report;

static void print_value(const report *r, option_id id, const char *section, const option_value *v)
{
    char origin[ORIGIN_MAX], name[96];
    const char *text;
    json_t *o;

    config_value(id, v, r->model, &text, origin);
    if (!r->rows) {
        snprintf(name, sizeof name, "%s%s%s%s", section ? "[" : "", section ? section : "", section ? "] " : "",
                 option_rows[id].name);
        out_printf("%-28s %-40s  %s\n", name, text, origin);
        return;
    }
    o = json_object();
    json_object_set_new(o, "name", json_string(option_rows[id].name));
    json_object_set_new(o, "command", section ? json_string(section) : json_null());
    json_object_set_new(o, "value", v->set ? out_string(text) : json_null());
    json_object_set_new(o, "origin", out_string(origin));
    json_array_append_new(r->rows, o);
}

static bool same_value(const option_value *x, const option_value *y)
{
    return x->set == y->set && x->origin == y->origin && x->line == y->line;
}

static bool from_section(const report *r, const option_value *v)
{
    for (int i = 0; v->origin == FROM_FILE && i < r->file.n; i++) {
        if (r->file.rows[i].line == v->line)
            return r->file.rows[i].section != NULL;
    }
    return false;
}

/* Once for all commands, and once more for each that has a value of its own. */
static void print_option(const report *r, option_id id)
{
    const option_value *usual = NULL;

    for (int c = 0; c < CMD_COUNT && !usual; c++) {
        if ((option_rows[id].commands & 1u << c) && !from_section(r, &r->of[c].values[id]))
            usual = &r->of[c].values[id];
    }
    if (usual)
        print_value(r, id, NULL, usual);
    for (int c = 0; c < CMD_COUNT; c++) {
        const option_value *v = &r->of[c].values[id];

        if ((option_rows[id].commands & 1u << c) && (!usual || !same_value(v, usual)))
            print_value(r, id, commands[c].name, v);
    }
}

static void print_places(json_t *to, swl_error *err)
{
    static const struct {
        const char *name, *file;
        place where;
    } rows[] = {{"config file", "config.ini", PLACE_CONFIG}, {"models", "", PLACE_MODELS}, {"caches", "", PLACE_CACHE},
                {"history", "history", PLACE_STATE}, {"sessions", "sessions", PLACE_STATE}};

    for (int i = 0; i < 5; i++) {
        char path[PLACE_PATH_MAX];

        if (place_path(path, rows[i].where, rows[i].file, err))
            continue;
        if (to)
            json_object_set_new(to, rows[i].name, out_string(path));
        else
            out_printf("%-28s %s\n", rows[i].name, path);
    }
}

static swl_status parse_all(report *r, const arguments *a, swl_error *err)
{
    swl_status st = SWL_OK;

    for (int c = 0; c < CMD_COUNT && !st; c++) {
        const char *none[1];

        st = options_parse(&r->of[c], (command_id)c, 0, NULL, none, err);
    }
    if (!st) /* what was given on this command line */
        r->of[CMD_INFO] = *a;
    return st;
}

swl_status config_report(const arguments *a, const char *dir, swl_error *err)
{
    static arguments of[CMD_COUNT];
    swl_sampling published;
    report r = {.rows = opt_on(a, OPT_JSON) ? json_array() : NULL, .of = of, .model = dir ? &published : NULL};
    swl_status st = parse_all(&r, a, err);
    json_t *o;

    swl_sampling_init(&published);
    published.temperature = 1; /* as sampling_from has it */
    if (!st)
        st = settings_read(&r.file, err);
    if (!st && dir)
        st = swl_sampling_load(&published, dir, err);

    for (int id = 0; id < OPT_COUNT && !st; id++) {
        if (option_rows[id].environment)
            print_option(&r, (option_id)id);
    }
    if (st || !r.rows) {
        json_decref(r.rows);
        if (!st)
            print_places(NULL, err);
        return st;
    }
    o = out_object();
    json_object_set_new(o, "settings", r.rows);
    json_object_set_new(o, "places", json_object());
    print_places(json_object_get(o, "places"), err);
    out_json(o);
    return SWL_OK;
}
