/*
 * driver.c: main for a fuzz target when libFuzzer is not linked in. Replays files, and the files of directories, once
 * each; with --seconds or --runs it then feeds random changes of them to the target, from a seed that it prints. The
 * input that ends the process is left in crash-TARGET, in the working directory; replay it by naming that file.
 *
 *   fuzz_NAME corpus/NAME                          replay (what every test run does)
 *   fuzz_NAME --seconds 60 [--seed N] corpus/NAME  fuzz; build with the preset asan, or nothing is noticed but crashes
 *
 * Inputs lie in blocks of exactly their size, so that a read behind the end is seen.
 */
#define _GNU_SOURCE
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define INPUT_BYTES_MAX 65536 /* of a mutated input */
#define INPUT_TIME_S    20    /* an input that takes longer is a fault */
#define CHANGES_MAX     6     /* made to a seed at once */

const char *__asan_default_options(void);
const char *__ubsan_default_options(void);
extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

/* A small file must not cost a large allocation: one above this limit ends the process with a report. */
const char *__asan_default_options(void)
{
    return "max_allocation_size_mb=1024:detect_stack_use_after_return=1";
}

/* gcc's UBSan does not call the death callback, but an abort is seen. */
const char *__ubsan_default_options(void)
{
    return "print_stacktrace=1:abort_on_error=1";
}

typedef struct input {
    uint8_t *data;
    size_t size;
} input;

static input *seeds;
static size_t n_seeds;
static const uint8_t *current;
static size_t current_size;
static char crash_name[256];

/* --- what happens when an input ends the process --- */

static void keep_current(void)
{
    int fd = current ? open(crash_name, O_WRONLY | O_CREAT | O_TRUNC, 0644) : -1;
    static const char text[] = "\nfuzz: the input is in ";

    if (fd < 0)
        return;
    if (write(fd, current, current_size) == (ssize_t)current_size && write(2, text, sizeof text - 1) > 0 &&
        write(2, crash_name, strlen(crash_name)) > 0 && write(2, "\n", 1) > 0)
        current = NULL; /* once */
    close(fd);
}

static void on_signal(int sig)
{
    keep_current();
    signal(sig, SIG_DFL);
    raise(sig);
}

static void watch_for_death(const char *program)
{
    const char *slash = strrchr(program, '/');

    snprintf(crash_name, sizeof crash_name, "crash-%s", slash ? slash + 1 : program);
    signal(SIGABRT, on_signal);
    signal(SIGALRM, on_signal);
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(keep_current);
        return;
    }
    signal(SIGSEGV, on_signal);
    signal(SIGBUS, on_signal);
    signal(SIGFPE, on_signal);
    signal(SIGILL, on_signal);
}

/* --- seeds --- */

static void *need(void *p)
{
    if (!p) {
        fprintf(stderr, "fuzz: out of memory\n");
        exit(2);
    }
    return p;
}

static void load_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    struct stat sb;
    input in;

    if (!f || fstat(fileno(f), &sb)) {
        perror(path);
        exit(2);
    }
    in.size = (size_t)sb.st_size;
    in.data = need(malloc(in.size ? in.size : 1));
    if (fread(in.data, 1, in.size, f) != in.size) {
        perror(path);
        exit(2);
    }
    fclose(f);
    seeds = need(realloc(seeds, (n_seeds + 1) * sizeof *seeds));
    seeds[n_seeds++] = in;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void load(const char *path)
{
    struct dirent **list;
    struct stat sb;
    char name[4096];
    int i, n;

    if (stat(path, &sb) || !S_ISDIR(sb.st_mode)) {
        load_file(path);
        return;
    }
    n = scandir(path, &list, NULL, by_name);
    for (i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s/%s", path, list[i]->d_name);
        if (list[i]->d_name[0] != '.' && !stat(name, &sb) && S_ISREG(sb.st_mode))
            load_file(name);
        free(list[i]);
    }
    if (n >= 0)
        free(list);
}

/* --- mutation --- */

static uint64_t random_state;

static size_t below(size_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return n ? (size_t)((random_state >> 11) % n) : 0;
}

/* Lengths of pieces: mostly short. */
static size_t piece(size_t n_max)
{
    size_t n = 1 + below(below(4) ? 8 : 256);

    return n < n_max ? n : n_max;
}

/* Makes a hole of n bytes at `at`; false when that would be too long. */
static bool open_gap(input *in, size_t at, size_t n)
{
    if (in->size + n > INPUT_BYTES_MAX)
        return false;
    memmove(in->data + at + n, in->data + at, in->size - at);
    in->size += n;
    return true;
}

static void insert_from_seed(input *in)
{
    const input *from = &seeds[below(n_seeds)];
    size_t n = piece(from->size), start = below(from->size - n + 1), at = below(in->size + 1);

    if (open_gap(in, at, n))
        memcpy(in->data + at, from->data + start, n);
}

static void repeat_piece(input *in)
{
    size_t at = below(in->size), n = piece(in->size - at);

    if (open_gap(in, at, n))
        memcpy(in->data + at, in->data + at + n, n);
}

static void remove_piece(input *in)
{
    size_t at = below(in->size), n = piece(in->size - at);

    memmove(in->data + at, in->data + at + n, in->size - at - n);
    in->size -= n;
}

/* Text that parsers stumble over. */
static void insert_word(input *in)
{
    static const char *const words[] = {
        "0",
        "-1",
        "1e999",
        "18446744073709551615",
        "9223372036854775807",
        "4294967296",
        "2147483648",
        "65536",
        "null",
        "true",
        "{}",
        "[]",
        "\"\"",
        "\\u0000",
        "\\ud800",
        "\xff",
        "[[",
        "{\"",
        ",",
        ":",
        "\xc3\xbc",
        "\xed\xa0\x80",
        "\xf0\x9f\x98\x80",
        "0.5",
    };
    const char *word = words[below(sizeof words / sizeof *words)];
    size_t at = below(in->size + 1);

    if (open_gap(in, at, strlen(word)))
        memcpy(in->data + at, word, strlen(word));
}

/* A little-endian number of 1, 2, 4 or 8 bytes near a limit. */
static void set_number(input *in)
{
    static const uint64_t limits[] = {0,
                                      1,
                                      0x7f,
                                      0x80,
                                      0xff,
                                      0x7fff,
                                      0xffff,
                                      0x7fffffff,
                                      0x80000000,
                                      0xffffffff,
                                      UINT64_C(1) << 32,
                                      INT64_MAX,
                                      UINT64_C(1) << 63,
                                      UINT64_MAX};
    uint64_t v = limits[below(sizeof limits / sizeof *limits)] + below(5) - 2;
    size_t n = (size_t)1 << below(4);

    if (in->size >= n)
        memcpy(in->data + below(in->size - n + 1), &v, n);
}

static void change(input *in)
{
    size_t at = below(in->size);

    switch (in->size ? below(9) : 4) {
    case 0:
        in->data[at] ^= (uint8_t)(1u << below(8));
        break;
    case 1:
        in->data[at] = (uint8_t)below(256);
        break;
    case 2:
        in->data[at] = (uint8_t)('0' + below(10));
        break;
    case 3:
        in->data[at] = in->data[below(in->size)];
        break;
    case 4:
        insert_from_seed(in);
        break;
    case 5:
        repeat_piece(in);
        break;
    case 6:
        remove_piece(in);
        break;
    case 7:
        insert_word(in);
        break;
    default:
        set_number(in);
    }
}

/* --- running --- */

static void run(const uint8_t *data, size_t size)
{
    uint8_t *exact = need(malloc(size ? size : 1));

    if (size)
        memcpy(exact, data, size);
    current = exact;
    current_size = size;
    alarm(INPUT_TIME_S);
    LLVMFuzzerTestOneInput(exact, size);
    alarm(0);
    current = NULL;
    free(exact);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t mutate(double seconds, uint64_t runs)
{
    input in = {need(malloc(INPUT_BYTES_MAX)), 0};
    double end = now() + seconds;
    uint64_t n;
    size_t k;

    for (n = 0; n < runs && (n % 64 || now() < end); n++) {
        const input *from = &seeds[below(n_seeds)];

        in.size = from->size < INPUT_BYTES_MAX ? from->size : INPUT_BYTES_MAX;
        memcpy(in.data, from->data, in.size);
        for (k = 1 + below(CHANGES_MAX); k; k--)
            change(&in);
        run(in.data, in.size);
    }
    free(in.data);
    return n;
}

static int usage(void)
{
    fprintf(stderr, "usage: fuzz_NAME [--seconds N] [--runs N] [--seed N] FILE_OR_DIRECTORY...\n");
    return 2;
}

int main(int argc, char **argv)
{
    double seconds = 0;
    uint64_t runs = 0, seed = (uint64_t)time(NULL), n_mutated = 0;
    size_t i;
    int a;

    watch_for_death(argv[0]);
    for (a = 1; a < argc; a++) {
        if (strncmp(argv[a], "--", 2))
            load(argv[a]);
        else if (a + 1 == argc)
            return usage();
        else if (!strcmp(argv[a], "--seconds"))
            seconds = atof(argv[++a]);
        else if (!strcmp(argv[a], "--runs"))
            runs = strtoull(argv[++a], NULL, 10);
        else if (!strcmp(argv[a], "--seed"))
            seed = strtoull(argv[++a], NULL, 10);
        else
            return usage();
    }
    if (!n_seeds)
        return usage();
    run(NULL, 0);
    for (i = 0; i < n_seeds; i++)
        run(seeds[i].data, seeds[i].size);
    if (seconds > 0 || runs) {
        random_state = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
        n_mutated = mutate(seconds > 0 ? seconds : 1e18, runs ? runs : UINT64_MAX);
        printf("%" PRIu64 " changed inputs from seed %" PRIu64 ", ", n_mutated, seed);
    }
    printf("%zu files replayed\n", n_seeds);
    for (i = 0; i < n_seeds; i++)
        free(seeds[i].data);
    free(seeds);
    return 0;
}
