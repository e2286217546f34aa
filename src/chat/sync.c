/* sync.c: a list, oldest first, of which the thread has ended those before `next`. */
#include "chat/sync.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"

struct swl_sync {
    pthread_t thread;
    void (*ended)(void *arg);
    void *arg;

    pthread_mutex_t lock; /* of the following */
    pthread_cond_t changed;
    swl_sync_file *first, **last, *next;
    int32_t n_waiting; /* from `next` on */
    bool closing;
};

static swl_sync_file *wait_for_work(swl_sync *s)
{
    swl_sync_file *f;

    pthread_mutex_lock(&s->lock);
    while (!s->next && !s->closing)
        pthread_cond_wait(&s->changed, &s->lock);
    f = s->next;
    pthread_mutex_unlock(&s->lock);
    return f;
}

static void *sync_main(void *arg)
{
    swl_sync *s = arg;
    swl_sync_file *f;

    while ((f = wait_for_work(s))) {
        f->err.code = swl_file_atomic_end(&f->file, SWL_OK, &f->err);
        pthread_mutex_lock(&s->lock);
        s->next = f->next;
        s->n_waiting--;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        s->ended(s->arg);
    }
    return NULL;
}

swl_status swl_sync_start(swl_sync **out, void (*ended)(void *arg), void *arg, swl_error *err)
{
    swl_sync *s = swl_calloc(1, sizeof *s);

    *out = NULL;
    if (!s)
        return swl_fail(err, SWL_E_NOMEM, "session directory: out of memory");
    s->ended = ended;
    s->arg = arg;
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->thread, NULL, sync_main, s)) {
        pthread_cond_destroy(&s->changed);
        pthread_mutex_destroy(&s->lock);
        swl_free(s);
        return swl_fail(err, SWL_E_FAIL, "session directory: no thread can be started");
    }
    *out = s;
    return SWL_OK;
}

void swl_sync_stop(swl_sync *s)
{
    swl_sync_file *f;

    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    while ((f = swl_sync_take(s, 0)))
        swl_sync_file_free(f);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    swl_free(s);
}

void swl_sync_put(swl_sync *s, swl_sync_file *f)
{
    pthread_mutex_lock(&s->lock);
    f->next = NULL;
    *s->last = f;
    s->last = &f->next;
    if (!s->next)
        s->next = f;
    s->n_waiting++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

swl_sync_file *swl_sync_take(swl_sync *s, int32_t most)
{
    swl_sync_file *f;

    pthread_mutex_lock(&s->lock);
    while (s->first == s->next && s->n_waiting > most)
        pthread_cond_wait(&s->changed, &s->lock);
    f = s->first == s->next ? NULL : s->first;
    if (f)
        s->first = f->next;
    if (!s->first)
        s->last = &s->first;
    pthread_mutex_unlock(&s->lock);
    return f;
}

const swl_sync_file *swl_sync_find(swl_sync *s, const char *name)
{
    swl_sync_file *f;

    pthread_mutex_lock(&s->lock);
    for (f = s->first; f && strcmp(f->name, name); f = f->next)
        ;
    pthread_mutex_unlock(&s->lock);
    return f;
}

void swl_sync_file_free(swl_sync_file *f)
{
    if (!f)
        return;
    swl_free(f->tmp);
    swl_free(f);
}
