/*
 * chat.c: a chat in a program of your own. Answers stream to standard output, Ctrl-C stops one, SIGUSR1 gives memory back.
 *
 *   cc -o chat chat.c $(pkg-config --cflags --libs swiftlet) && ./chat models/demo.qpack
 */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <swiftlet/swiftlet.h>

static swl_model *model;
static swl_chat *chat;
static volatile sig_atomic_t pressed;

static void on_signal(int number)
{
    if (number == SIGINT)
        swl_chat_cancel(chat); /* allowed in signal handlers: the running answer ends, what was said stays */
    else
        pressed = 1;
}

static bool on_event(void *arg, const swl_event *ev)
{
    (void)arg;
    if (ev->kind == SWL_EVENT_TEXT) {
        fwrite(ev->text, 1, ev->n_bytes, stdout);
        fflush(stdout);
    }
    if (pressed) {
        pressed = 0;
        swl_model_resize_pool(model, 0, NULL); /* down to what one token needs; a larger figure lets it grow again */
    }
    return true; /* false would end the answer */
}

int main(int argc, char **argv)
{
    swl_model_options options;
    swl_engine_options chat_engine;
    swl_request_options request;
    swl_tokenizer *tokenizer = NULL;
    swl_engine *engine = NULL;
    swl_error err = {0};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    char line[4096];

    swl_model_options_init(&options);
    options.path = argc > 1 ? argv[1] : "models/demo.qpack";
    options.memory_bytes = UINT64_C(4) << 30; /* of the whole process; 0: what the machine has to give */
    swl_engine_options_init(&chat_engine);
    swl_request_options_init(&request);
    request.on_event = on_event;
    if (swl_model_open(&model, &options, &err) || swl_tokenizer_open(&tokenizer, options.path, &err) ||
        swl_sampling_load(&request.sampling, options.path, &err))
        goto done;
    chat_engine.model = model;
    chat_engine.tokenizer = tokenizer;
    chat_engine.dir = options.path;
    if (swl_engine_open(&engine, &chat_engine, &err) || swl_chat_create(&chat, engine, &err))
        goto done;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    while (fputs("> ", stderr), fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (swl_chat_add(chat, "user", line, &err) || swl_chat_answer(chat, &request, NULL, NULL, &err))
            break;
        putchar('\n');
    }
done:
    if (err.code)
        fprintf(stderr, "%s\n", err.message);
    swl_chat_free(chat); /* the other way round; NULL is allowed everywhere */
    swl_engine_close(engine);
    swl_tokenizer_close(tokenizer);
    swl_model_close(model);
    return err.code ? 1 : 0;
}
