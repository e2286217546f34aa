/*
 * place.h: files inside a directory that is being filled, by relative path. Nothing is followed: a link on the way, or one
 * in the place of the file, is an error, so that bytes from outside cannot land outside.
 */
#ifndef SWL_INSTALL_PLACE_H
#define SWL_INSTALL_PLACE_H

#include <swiftlet/swiftlet.h>

/* Opens dir/path for reading and writing, creating it and the directories before it; it gets its full length, with room on
 * the disk when the file system can promise that (ENOSPC now rather than later: SWL_E_BUDGET). */
swl_status swl_place_open(int *fd, const char *dir, const char *path, uint64_t size, swl_error *err);
/* The same without taking room: the file is a hole at first. */
swl_status swl_place_open_hole(int *fd, const char *dir, const char *path, uint64_t size, swl_error *err);
/* The bytes written so far are durable when this returns. */
swl_status swl_place_sync(int fd, const char *path, swl_error *err);
/* Starts bringing bytes to the disk, so that the next sync is short. */
void swl_place_hurry(int fd, uint64_t offset, uint64_t n);
/* Whether dir/path is a plain file, not reached through links; *size its length. */
bool swl_place_has(const char *dir, const char *path, uint64_t *size);
/* Bytes that are free where dir lies; UINT64_MAX: unknown. */
uint64_t swl_place_free(const char *dir);
/* Bytes that dir/path takes on the disk already; 0 when it is not there. */
uint64_t swl_place_allocated(const char *dir, const char *path);
/* Fills dir/path with a copy of a file anywhere; shares its blocks where the file system can. `on_bytes` as for digests. */
swl_status swl_place_copy(const char *dir, const char *path, const char *from, uint64_t size,
                          swl_status (*on_bytes)(void *arg, uint64_t n, swl_error *err), void *arg, swl_error *err);
/* A small file, whole and durable. */
swl_status swl_place_put(const char *dir, const char *path, const void *data, uint64_t n, swl_error *err);
/* Removes dir/path. Not being there is no error. */
swl_status swl_place_remove(const char *dir, const char *path, swl_error *err);
/* Calls fn with the relative path of every file under dir (links and special files too). */
swl_status swl_place_walk(const char *dir, swl_status (*fn)(void *arg, const char *path, swl_error *err), void *arg,
                          swl_error *err);
/* Makes every directory under dir, and dir, durable. */
swl_status swl_place_sync_dirs(const char *dir, swl_error *err);

#endif
