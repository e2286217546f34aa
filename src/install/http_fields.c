/* http_fields.c: see http_fields.h. */
#include "install/http_fields.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char *skip_blanks(const char *p)
{
    return p + strspn(p, " \t");
}

/* Digits up to 2^62; NULL when there are none or too many. */
static const char *read_number(const char *p, uint64_t *v)
{
    if (!isdigit((unsigned char)*p))
        return NULL;
    for (*v = 0; isdigit((unsigned char)*p); p++) {
        if (*v > (UINT64_C(1) << 62) / 10 - 1)
            return NULL;
        *v = 10 * *v + (uint64_t)(*p - '0');
    }
    return p;
}

bool swl_field_content_range(const char *text, uint64_t *begin, uint64_t *end, uint64_t *total)
{
    const char *p = skip_blanks(text);

    for (const char *unit = "bytes"; *unit; unit++, p++)
        if (tolower((unsigned char)*p) != *unit)
            return false;
    if (*p != ' ' && *p != '\t')
        return false;
    p = read_number(skip_blanks(p), begin);
    if (!p || *p != '-')
        return false;
    p = read_number(p + 1, end);
    if (!p || *p != '/')
        return false;
    p = read_number(p + 1, total);
    if (!p || *skip_blanks(p))
        return false;
    ++*end;
    return *begin < *end && *end <= *total;
}

/* One parameter behind a target, from its name on; returns where the next begins. *next: it is rel="next". */
static const char *parameter(const char *p, bool *next)
{
    size_t name = strcspn(p, "=;,"), n;
    bool rel = name == 3 && tolower((unsigned char)p[0]) == 'r' && tolower((unsigned char)p[1]) == 'e' &&
               tolower((unsigned char)p[2]) == 'l';
    const char *value;

    p += name;
    if (*p != '=')
        return p;
    p = skip_blanks(p + 1);
    if (*p == '"') {
        value = p + 1;
        n = strcspn(value, "\"");
        p = value + n + (value[n] == '"');
    } else {
        value = p;
        n = strcspn(p, ";, \t");
        p += n;
    }
    if (rel && n == 4 && !strncmp(value, "next", 4))
        *next = true;
    return p;
}

bool swl_field_link_next(const char *text, char *dst, size_t n)
{
    const char *p = text;

    while (*(p = p + strspn(p, " \t,"))) {
        const char *target = p + 1, *end = *p == '<' ? strchr(target, '>') : NULL;
        bool next = false;

        if (!end)
            return false;
        p = skip_blanks(end + 1);
        while (*p == ';')
            p = skip_blanks(parameter(skip_blanks(p + 1), &next));
        if (next && end > target && (size_t)(end - target) < n) {
            memcpy(dst, target, (size_t)(end - target));
            dst[end - target] = 0;
            return true;
        }
        if (*p && *p != ',')
            return false;
    }
    return false;
}

/* Days from 1970-01-01 to a day of the Gregorian calendar (H. Hinnant, "chrono-compatible low-level date algorithms"). */
static int64_t days_from_civil(int64_t y, int m, int d)
{
    int64_t era, year_of_era, day_of_year;

    y -= m <= 2;
    era = (y >= 0 ? y : y - 399) / 400;
    year_of_era = y - era * 400;
    day_of_year = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

/* "Sun, 06 Nov 1994 08:49:37 GMT" */
static bool read_date(const char *p, int64_t *seconds)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    int d, y, h, m, s, n = 0;
    char day[4], month[4];
    const char *at;

    if (sscanf(p, "%3[A-Za-z], %2d %3[A-Za-z] %4d %2d:%2d:%2d GMT%n", day, &d, month, &y, &h, &m, &s, &n) != 7 || !n)
        return false;
    at = strlen(month) == 3 ? strstr(months, month) : NULL;
    if (!at || (at - months) % 3 || d < 1 || d > 31 || y < 1970 || h < 0 || h > 23 || m < 0 || m > 59 || s < 0 || s > 60)
        return false;
    *seconds = days_from_civil(y, (int)(at - months) / 3 + 1, d) * 86400 + h * 3600 + m * 60 + s;
    return true;
}

int64_t swl_field_retry_after(const char *text, int64_t now)
{
    const char *p = skip_blanks(text), *end;
    uint64_t n;
    int64_t at;

    end = read_number(p, &n);
    if (end)
        return *skip_blanks(end) ? -1 : (int64_t)n;
    if (!read_date(p, &at))
        return -1;
    return at > now ? at - now : 0;
}
