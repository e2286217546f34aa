/* page.c: what is shown at / in a program that was built without the chat page. */
#include "page.h"

#include <string.h>

static const char html[] =
    "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>Swiftlet</title></head>\n<body>\n"
    "<h1>Swiftlet</h1>\n"
    "<p>The server is running. This program was built without the chat page: install npm, then configure and build "
    "again.</p>\n<p>Clients use this address with /v1 behind it.</p>\n</body>\n</html>\n";

static const swl_page_file files[] = {
    {"/", "text/html; charset=utf-8", "no-cache", html, sizeof html - 1, NULL, 0},
};

const swl_page_file *swl_page_find(const char *path)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (!strcmp(path, files[i].path))
            return &files[i];
    }
    return NULL;
}
