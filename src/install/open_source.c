/* open_source.c: tells the forms of sources apart, by content. */
#include "install/open_source.h"

#include <string.h>

#include "base/file.h"
#include "install/fp8_source.h"
#include "install/gguf_source.h"

static bool begins_with_gguf(const char *path)
{
    char magic[4];
    uint64_t size;
    bool yes;
    int fd;

    if (swl_dir_exists(path) || swl_file_open(&fd, &size, path, NULL))
        return false;
    yes = size >= sizeof magic && !swl_file_read_at(fd, path, 0, magic, sizeof magic, NULL) && !memcmp(magic, "GGUF", 4);
    swl_file_close(fd);
    return yes;
}

swl_status swl_open_source(swl_checkpoint **out, const char *path, bool exact_scales, swl_error *err)
{
    if (begins_with_gguf(path))
        return swl_gguf_checkpoint_open(out, path, exact_scales, err);
    return swl_checkpoint_open_through(out, path, swl_fp8_filter, err);
}
