/* hasher.c: see hasher.h. One job at most, handed over under a lock; `sha` is NULL while there is none. */
#include "install/hasher.h"

#include <pthread.h>

#include "base/mem.h"
#include "base/status.h"

struct swl_hasher {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    EVP_MD_CTX *sha; /* under the lock, as all below */
    const void *data;
    uint64_t n;
    bool failed, ends;
};

static void *work(void *arg)
{
    swl_hasher *h = arg;

    pthread_mutex_lock(&h->lock);
    for (;;) {
        bool ok;

        while (!h->sha && !h->ends)
            pthread_cond_wait(&h->changed, &h->lock);
        if (!h->sha)
            break;
        pthread_mutex_unlock(&h->lock);
        ok = EVP_DigestUpdate(h->sha, h->data, h->n);
        pthread_mutex_lock(&h->lock);
        h->failed |= !ok;
        h->sha = NULL;
        pthread_cond_broadcast(&h->changed);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

swl_status swl_hasher_create(swl_hasher **out, swl_error *err)
{
    swl_hasher *h = swl_calloc(1, sizeof *h);

    *out = NULL;
    if (!h)
        return swl_fail(err, SWL_E_NOMEM, "out of memory for a hash");
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->changed, NULL);
    if (pthread_create(&h->thread, NULL, work, h)) {
        pthread_cond_destroy(&h->changed);
        pthread_mutex_destroy(&h->lock);
        swl_free(h);
        return swl_fail(err, SWL_E_NOMEM, "cannot start a thread for a hash");
    }
    *out = h;
    return SWL_OK;
}

void swl_hasher_free(swl_hasher *h)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    h->ends = true;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    swl_free(h);
}

static void wait_idle(swl_hasher *h)
{
    while (h->sha)
        pthread_cond_wait(&h->changed, &h->lock);
}

void swl_hasher_add(swl_hasher *h, EVP_MD_CTX *sha, const void *data, uint64_t n)
{
    pthread_mutex_lock(&h->lock);
    wait_idle(h);
    h->sha = sha;
    h->data = data;
    h->n = n;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

swl_status swl_hasher_wait(swl_hasher *h, swl_error *err)
{
    bool failed;

    pthread_mutex_lock(&h->lock);
    wait_idle(h);
    failed = h->failed;
    h->failed = false;
    pthread_mutex_unlock(&h->lock);
    return failed ? swl_fail(err, SWL_E_FAIL, "libcrypto cannot hash") : SWL_OK;
}
