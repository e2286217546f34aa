/*
 * settings.h: the config file: "key = value" lines, where a key is an option's name, and [command] lines, after which keys
 * count for that command alone. Lines that begin with # or ; are comments; quotes around a value keep its spaces.
 */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H

#include <swiftlet/swiftlet.h>

typedef struct setting {
    int line;                /* from 1 */
    const char *section;     /* NULL: before the first section */
    const char *key;         /* NULL: the line is none of the above */
    const char *value;
} setting;

typedef struct settings {
    const char *path;
    const setting *rows;
    int n;
} settings;

/* Read once; an absent file is an empty one. What *out points to stays. */
swl_status settings_read(settings *out, swl_error *err);

#endif
