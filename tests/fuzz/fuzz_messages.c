/*
 * Messages as they come from clients: whatever the text, it becomes messages in the one form, or an error with a message. What
 * is in that form already stays as it is, and seals are found again wherever they stand in it.
 */
#include "fuzz/fuzz.h"

#include <string.h>

#include "base/mem.h"
#include "chat/json_in.h"
#include "chat/messages.h"

static void check_form(const json_t *list)
{
    bool asked = false;

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *m = json_array_get(list, i), *calls = json_object_get(m, "tool_calls");
        const char *role = json_string_value(json_object_get(m, "role"));

        CHECK(role && json_is_string(json_object_get(m, "content")));
        CHECK(!strcmp(role, "system") ? !i : !strcmp(role, "user") || !strcmp(role, "assistant") || !strcmp(role, "tool"));
        asked |= !strcmp(role, "user");
        for (size_t j = 0; j < json_array_size(calls) && !strcmp(role, "assistant"); j++) {
            const json_t *f = json_object_get(json_array_get(calls, j), "function");

            CHECK(json_is_string(json_object_get(f, "name")) && json_object_get(f, "arguments"));
        }
    }
    CHECK(asked);
}

static void check_seals(const swl_seal *seal, const char *text, size_t n)
{
    swl_sbuf b = {0};
    swl_seal_kind kind;
    const char *body;
    size_t n_body, n_found = 0;

    swl_sbuf_put(&b, text, n / 2);
    swl_seal_put(seal, SWL_SEAL_CONTENT, "17", 2, &b);
    swl_sbuf_put(&b, text + n / 2, n - n / 2);
    for (size_t i = 0; i < b.n; i++)
        if (swl_seal_at(seal, b.p + i, b.n - i, &kind, &body, &n_body)) {
            CHECK(i == n / 2 && kind == SWL_SEAL_CONTENT && n_body == 2 && !memcmp(body, "17", 2));
            n_found++;
        }
    CHECK(n_found == 1);
    swl_sbuf_deinit(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    json_t *in = NULL, *list, *again;
    swl_error err = {0};
    swl_seal seal;

    swl_seal_init(&seal);
    check_seals(&seal, text, size);
    for (int xml = 0; xml < 2; xml++) {
        if (swl_json_in(&in, text, size, &seal, "messages", &err) || swl_messages_normalise(&list, in, xml, &seal, &err)) {
            CHECK(err.code == SWL_E_ARG && err.message[0]);
            json_decref(in);
            in = NULL;
            continue;
        }
        check_form(list);
        CHECK(!swl_messages_normalise(&again, list, xml, &seal, &err));
        CHECK(json_equal(list, again));
        json_decref(again);
        json_decref(list);
        json_decref(in);
        in = NULL;
    }
    return 0;
}
