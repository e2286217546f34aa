/* values.c: numbers, sizes, durations and switches as people write them. */
#include "values.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool parse_int(const char *text, int64_t *out)
{
    char *end;

    if (!isdigit((unsigned char)*text) && !((*text == '-' || *text == '+') && isdigit((unsigned char)text[1])))
        return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return !*end && !errno;
}

bool parse_real(const char *text, double *out)
{
    char *end;

    if (!*text || isspace((unsigned char)*text) || strpbrk(text, "xX"))
        return false;
    *out = strtod(text, &end);
    return !*end && isfinite(*out);
}

bool parse_seed(const char *text, uint64_t *out)
{
    char *end;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return !*end && !errno && *out <= INT64_MAX; /* so that JSON can hold it */
}

/* A number, and K, M, G or T with or without B or iB behind it. */
bool parse_size(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    char *end;
    const char *unit;
    double x;

    if (!isdigit((unsigned char)*text) || strpbrk(text, "xX"))
        return false;
    x = strtod(text, &end);
    unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit) {
        x = ldexp(x, 10 * (int)(unit - units + 1));
        end++;
        if (end[0] == 'i' && end[1] == 'B')
            end++;
    }
    if (*end == 'B')
        end++;
    if (*end || !(x >= 1) || x > 0x1p60)
        return false;
    *out = (uint64_t)x;
    return true;
}

bool parse_switch(const char *text, bool *on)
{
    static const char *const yes[] = {"on", "1", "true", "yes"}, *const no[] = {"off", "0", "false", "no"};

    for (int i = 0; i < 4; i++) {
        if (!strcmp(text, yes[i]) || !strcmp(text, no[i])) {
            *on = !strcmp(text, yes[i]);
            return true;
        }
    }
    return false;
}

bool parse_duration(const char *text, double *seconds)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"ms", 0.001}};
    char *end;

    if (!isdigit((unsigned char)*text) || strpbrk(text, "xX"))
        return false;
    *seconds = strtod(text, &end);
    for (int i = 0; i < 5; i++) {
        if (!strcmp(end, units[i].unit)) {
            *seconds *= units[i].seconds;
            return isfinite(*seconds);
        }
    }
    return false;
}

bool choice_has(const char *choices, const char *text)
{
    size_t n = strlen(text);

    for (const char *p = choices; n && *p; p += strcspn(p, "|"), p += *p == '|') {
        if (strcspn(p, "|") == n && !memcmp(p, text, n))
            return true;
    }
    return false;
}
