/*
 * page.h: the chat page's files as they lie in the program. The build makes them from web/ (cmake/web.cmake); without them
 * server/page.c has one page that says how to get it.
 */
#ifndef SERVER_PAGE_H
#define SERVER_PAGE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct swl_page_file {
    const char *path;          /* as in the URL: "/", "/assets/main-1a2b3c4d.js" */
    const char *content_type;
    const char *cache_control; /* "no-cache", or "public, max-age=31536000, immutable" where the name has a hash */
    const void *bytes;
    size_t n_bytes;
    const void *gzip;          /* NULL: there is no compressed copy */
    size_t n_gzip;
} swl_page_file;

/* Made by the build where SWL_HAVE_PAGE is set; none when the page could not be built. */
extern const swl_page_file swl_page_files[];
extern const size_t swl_page_n_files;

/* By the decoded path of the URL, without its query. NULL: no such file. Static storage. */
const swl_page_file *swl_page_find(const char *path);

#endif
