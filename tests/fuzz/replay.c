/* replay.c: runs a fuzz target over saved inputs (files, or folders of files), for builds without a fuzzing engine. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int n_run, n_unreadable;

/* The block has exactly the input's size, so that the address sanitizer sees a read past its end. */
static void replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    long n = -1;
    uint8_t *data = NULL;

    if (f && !fseek(f, 0, SEEK_END))
        n = ftell(f);
    if (n >= 0 && (data = malloc(n ? (size_t)n : 1)))
        rewind(f);
    if (data && fread(data, 1, (size_t)n, f) == (size_t)n) {
        LLVMFuzzerTestOneInput(data, (size_t)n);
        n_run++;
    } else {
        fprintf(stderr, "cannot read %s\n", path);
        n_unreadable++;
    }
    free(data);
    if (f)
        fclose(f);
}

static void replay(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *e;
    char name[4096];

    if (!d) {
        replay_file(path);
        return;
    }
    while ((e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        replay(name);
    }
    closedir(d);
}

int main(int argc, char **argv)
{
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++)
        replay(argv[i]);
    printf("%d inputs\n", n_run);
    return n_unreadable ? 1 : 0;
}
