/* temp_root.h: a folder of its own for a test program, made and removed as the group's setup and teardown. */
#ifndef SWL_TESTS_TEMP_ROOT_H
#define SWL_TESTS_TEMP_ROOT_H

#include <stdio.h>
#include <stdlib.h>

static char root[64];

/* Of the last four names asked for. */
static const char *in_root(const char *name)
{
    static char path[4][128];
    static int next;

    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", root, name);
    return path[next];
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/swl-test-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

#endif
