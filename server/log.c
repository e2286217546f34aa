/*
 * log.c: lines of the log wait for a thread of their own, because writing one may take for ever: standard error can be a
 * full pipe that nobody reads. There is a bound to what waits; what comes beyond is counted, and told when there is room.
 */
#include "srv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAITING_BYTES (1 << 20) /* of lines; a prompt that is logged comes at once */
#define LAST_SECONDS  1         /* for the lines that wait when the server ends */

typedef struct line {
    struct line *next;
    bool detail;
    char text[];
} line;

struct srv_logger {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    line *first, **last;
    size_t n_bytes;
    uint64_t n_lost;
    bool lost_detail;       /* nothing but details were */
    bool stop, done;
    void (*write)(void *arg, bool detail, const char *text);
    void *arg;
};

static void add(srv_logger *l, bool detail, const char *text)
{
    size_t n = sizeof(line) + strlen(text) + 1;
    line *new = l->n_bytes + n <= WAITING_BYTES ? malloc(n) : NULL;

    if (!new) {
        l->lost_detail = detail && (l->lost_detail || !l->n_lost);
        l->n_lost++;
        return;
    }
    new->next = NULL;
    new->detail = detail;
    strcpy(new->text, text);
    *l->last = new;
    l->last = &new->next;
    l->n_bytes += n;
}

void srv_log(srv_server *s, bool detail, const char *format, ...)
{
    srv_logger *l = s->logger;
    char text[512];
    va_list ap;

    if (!l)
        return;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    pthread_mutex_lock(&l->lock);
    add(l, detail, text);
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

static line *take(srv_logger *l)
{
    line *first = l->first;

    l->first = first->next;
    if (!l->first)
        l->last = &l->first;
    l->n_bytes -= sizeof *first + strlen(first->text) + 1;
    return first;
}

/* Puts what was lost in line. */
static void tell_lost(srv_logger *l)
{
    char text[80];
    uint64_t n = l->n_lost;

    l->n_lost = 0;
    snprintf(text, sizeof text, "%llu lines of the log were lost: they were not read in time", (unsigned long long)n);
    add(l, l->lost_detail, text);
}

static void *log_main(void *arg)
{
    srv_logger *l = arg;
    line *at;

    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->first && !l->stop)
            pthread_cond_wait(&l->changed, &l->lock);
        if (!l->first)
            break;
        at = take(l);
        if (l->n_lost && !l->first)
            tell_lost(l);
        pthread_mutex_unlock(&l->lock);
        l->write(l->arg, at->detail, at->text);
        free(at);
        pthread_mutex_lock(&l->lock);
    }
    l->done = true;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

void srv_log_start(srv_server *s)
{
    srv_logger *l = s->opt.log ? calloc(1, sizeof *l) : NULL;

    if (!l)
        return;
    l->last = &l->first;
    l->write = s->opt.log;
    l->arg = s->opt.arg;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    if (pthread_create(&l->thread, NULL, log_main, l))
        free(l);
    else
        s->logger = l;
}

void srv_log_end(srv_server *s)
{
    srv_logger *l = s->logger;
    struct timespec until;
    bool done;
    int late = 0;

    s->logger = NULL;
    if (!l)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LAST_SECONDS;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->changed);
    while (!l->done && late != ETIMEDOUT)
        late = pthread_cond_timedwait(&l->changed, &l->lock, &until);
    done = l->done;
    pthread_mutex_unlock(&l->lock);
    if (!done) { /* it hangs in a line, and what it has stays with it */
        pthread_detach(l->thread);
        return;
    }
    pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
}
