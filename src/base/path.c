/* path.c: the rules for paths from outside. */
#include "base/path.h"

#include <string.h>
#include <strings.h>

#define PATH_BYTES_MAX 1024
#define COMPONENT_MAX  255
#define DEPTH_MAX      8

/* CON, PRN, AUX, NUL, COM0 to COM9, LPT0 to LPT9, whatever extension follows. */
static bool is_device(const char *s, size_t n)
{
    static const char *const names[] = {"con", "prn", "aux", "nul", "com", "lpt"};
    const char *dot = memchr(s, '.', n);

    n = dot ? (size_t)(dot - s) : n;
    for (int i = 0; i < 6; i++)
        if (!strncasecmp(s, names[i], 3) && (n == (i < 4 ? 3 : 4)) && (i < 4 || (s[3] >= '0' && s[3] <= '9')))
            return true;
    return false;
}

static bool component_is_safe(const char *s, size_t n)
{
    if (!n || n > COMPONENT_MAX || s[n - 1] == '.' || s[n - 1] == ' ' || is_device(s, n))
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f || s[i] == '\\' || s[i] == ':')
            return false;
    return true;
}

bool swl_path_is_safe(const char *path)
{
    if (*path == '.' || strlen(path) > PATH_BYTES_MAX)
        return false;
    for (int depth = 0; depth < DEPTH_MAX; depth++) {
        size_t n = strcspn(path, "/");

        if (!component_is_safe(path, n))
            return false;
        if (!path[n])
            return true;
        path += n + 1;
    }
    return false;
}
