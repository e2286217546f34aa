/*
 * doctor.c: swiftlet doctor: what this machine is, what stands in the way of speed, and which models fit (known.h).
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#if defined(__linux__)
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#endif

#include "commands.h"
#include "format.h"
#include "known.h"
#include "output.h"
#include "places.h"

enum { TRAPS_MAX = 8 };

typedef struct findings {
    char dir[PLACE_PATH_MAX];
    swl_machine_info m;
    char problem[768];   /* of the measurement */
    char file_system[24];
    long read_ahead_kb;  /* -1: unknown */
    char traps[TRAPS_MAX][240];
    int n_traps;
    known_estimate models[N_KNOWN];
} findings;

static void trap(findings *f, const char *text)
{
    if (f->n_traps < TRAPS_MAX)
        snprintf(f->traps[f->n_traps++], sizeof f->traps[0], "%s", text);
}

/* ---- file system and drive ------------------------------------------------------------------------------------------------- */

#if defined(__linux__)

typedef struct file_system {
    long magic;
    const char *name, *trap;
} file_system;

static const file_system file_systems[] = {
    {0xef53, "ext4", NULL},
    {0x58465342, "xfs", NULL},
    {0x9123683e, "btrfs", "btrfs compresses and copies on write: keep models in a folder with \"chattr +C\" for steady reads"},
    {0xf2f52010, "f2fs", NULL},
    {0x2fc12fc1, "zfs", "zfs keeps a cache of its own, which takes memory from the expert pool"},
    {0x01021994, "tmpfs", "this folder lies in memory: models there take the memory that the expert pool needs"},
    {0x794c7630, "overlay", "this folder lies in a container's overlay: a volume is faster and survives"},
    {0x6969, "nfs", "this folder lies on a network: experts come at its speed and delay"},
    {0xff534d42, "cifs", "this folder lies on a network: experts come at its speed and delay"},
    {0xfe534d42, "smb2", "this folder lies on a network: experts come at its speed and delay"},
    {0x65735546, "fuse", "this folder lies on a file system in user space, whose reads are slow"},
    {0x01021997, "9p", "this folder lies on the host of a virtual machine: a drive of its own is many times faster"},
    {0x5346544e, "ntfs", "reads of NTFS are slow under Linux"},
};

static void look_at_file_system(findings *f)
{
    struct statfs s;

    if (statfs(f->dir, &s))
        return;
    snprintf(f->file_system, sizeof f->file_system, "0x%lx", (unsigned long)s.f_type);
    for (size_t i = 0; i < sizeof file_systems / sizeof file_systems[0]; i++)
        if ((unsigned long)s.f_type == (unsigned long)file_systems[i].magic) {
            snprintf(f->file_system, sizeof f->file_system, "%s", file_systems[i].name);
            if (file_systems[i].trap)
                trap(f, file_systems[i].trap);
        }
}

static long read_number(const char *path)
{
    FILE *f = fopen(path, "r");
    long n = -1;

    if (f && fscanf(f, "%ld", &n) != 1)
        n = -1;
    if (f)
        fclose(f);
    return n;
}

/* Of the device, or of the one that a partition is part of. */
static void look_at_device(findings *f)
{
    struct stat sb;
    char path[128];
    long rotates;

    if (stat(f->dir, &sb))
        return;
    for (int i = 0; i < 2 && f->read_ahead_kb < 0; i++) {
        const char *up = i ? "../" : "";

        snprintf(path, sizeof path, "/sys/dev/block/%u:%u/%squeue/read_ahead_kb", major(sb.st_dev), minor(sb.st_dev), up);
        f->read_ahead_kb = read_number(path);
        snprintf(path, sizeof path, "/sys/dev/block/%u:%u/%squeue/rotational", major(sb.st_dev), minor(sb.st_dev), up);
        rotates = read_number(path);
        if (rotates == 1 && f->read_ahead_kb >= 0 && f->m.drive_read < 300e6) /* virtual drives often say so wrongly */
            trap(f, "the system takes this drive for a rotating disk: experts at random places come at a few MB/s from one");
    }
    if (f->read_ahead_kb > 1024 && !f->m.drive_direct)
        trap(f, "the drive reads far ahead (read_ahead_kb above 1024), which costs buffered reads of experts their speed");
}

#else

static void look_at_file_system(findings *f)
{
    (void)f;
}

static void look_at_device(findings *f)
{
    (void)f;
}

#endif

static void look_for_traps(findings *f)
{
    look_at_file_system(f);
    look_at_device(f);
    if (f->m.group_limit && f->m.group_limit < f->m.memory_total)
        trap(f, "a cgroup limits the memory of this process, page cache included; --memory follows it by itself");
    if (f->m.drive_read > 0 && !f->m.drive_direct)
        trap(f, "direct reads are not possible here: experts pass through the page cache, which takes memory");
    if (f->m.drive_read > 0 && f->m.drive_read < 500e6)
        trap(f, "the drive gives less than 500 MB/s at random places: models that fit in memory are much faster");
    if (!strcmp(f->m.cpu_level, "scalar"))
        trap(f, "the processor has none of the instruction sets that the kernels are written for");
}

/* ---- telling ------------------------------------------------------------------------------------------------------------------ */

static void print_machine(const findings *f)
{
    char a[16], b[16];

    out_printf("version      %s\n", swl_version());
    out_printf("processor    %d threads, %s kernels\n", (int)f->m.n_cpus, f->m.cpu_level);
    out_printf("memory       %s, %s available", format_bytes(a, f->m.memory_total), format_bytes(b, f->m.memory_available));
    if (f->m.memory_read > 0)
        out_printf(", %.1f GB/s", 1e-9 * f->m.memory_read);
    out_printf("\n");
    if (f->m.group_limit)
        out_printf("cgroup       %s, %s used\n", format_bytes(a, f->m.group_limit), format_bytes(b, f->m.group_used));
    out_printf("budget       %s when --memory is not given\n", format_bytes(a, f->m.memory_budget));
    out_printf("folder       %s\n", f->dir);
    out_printf("drive        %s free%s%s", format_bytes(a, f->m.disk_free), f->file_system[0] ? ", " : "", f->file_system);
    if (f->m.drive_read > 0)
        out_printf(", %.2f GB/s in reads of %s at random places%s, %.2f GB/s written", 1e-9 * f->m.drive_read,
                   format_bytes(b, f->m.drive_read_bytes), f->m.drive_direct ? " (direct)" : "", 1e-9 * f->m.drive_write);
    out_printf("\n");
    if (f->problem[0])
        out_printf("             not measured: %s\n", f->problem);
    for (int i = 0; i < f->n_traps; i++)
        out_printf("%s%s\n", i ? "             " : "look out     ", f->traps[i]);
}

static void print_models(const findings *f)
{
    char size[16];

    out_printf("\n%-22s %-9s %-10s %-16s %s\n", "at four bits", "download", "on disk", "experts kept", "at most");
    for (int i = 0; i < N_KNOWN; i++) {
        const known_estimate *e = &f->models[i];

        out_printf("%-22s %-9s %-10s ", known_models[i].name, format_bytes(size, e->download), e->on_disk ? "fits" : "no room");
        if (!e->in_memory)
            out_printf("needs more memory: %s\n", format_bytes(size, e->memory));
        else if (!known_models[i].n_experts && e->rate > 0)
            out_printf("%-16s %.1f tokens/s\n", "dense", e->rate);
        else if (e->rate > 0)
            out_printf("%4d of %-8d %.1f tokens/s (%.0f %% of experts from memory)\n", e->slots, known_models[i].n_experts, e->rate,
                       100 * e->hits);
        else
            out_printf("%4d of %d\n", e->slots, known_models[i].n_experts);
    }
    out_printf("Speeds are arithmetic from the rates above, with synthetic routes; real ones are lower. Downloads of originals are\n"
               "about, and need no room beside what is on disk.\n");
}

static json_t *models_json(const findings *f)
{
    json_t *list = json_array();

    for (int i = 0; i < N_KNOWN; i++) {
        const known_estimate *e = &f->models[i];
        json_t *o = json_object();

        json_object_set_new(o, "name", json_string(known_models[i].name));
        json_object_set_new(o, "source", json_string(known_models[i].source));
        json_object_set_new(o, "download_bytes", json_integer((json_int_t)e->download));
        json_object_set_new(o, "bytes", json_integer((json_int_t)e->bytes));
        json_object_set_new(o, "memory_at_least", json_integer((json_int_t)e->memory));
        json_object_set_new(o, "fits_on_disk", json_boolean(e->on_disk));
        json_object_set_new(o, "fits_in_memory", json_boolean(e->in_memory));
        json_object_set_new(o, "experts_kept", json_integer(e->slots));
        json_object_set_new(o, "experts", json_integer(known_models[i].n_experts));
        json_object_set_new(o, "hits_synthetic", e->rate > 0 ? json_real(e->hits) : json_null());
        json_object_set_new(o, "tokens_per_second_at_most", e->rate > 0 ? json_real(e->rate) : json_null());
        json_array_append_new(list, o);
    }
    return list;
}

static void set_bytes(json_t *o, const char *key, uint64_t n)
{
    json_object_set_new(o, key, json_integer((json_int_t)n));
}

static void print_json(const findings *f)
{
    json_t *o = out_object(), *traps = json_array();

    json_object_set_new(o, "swiftlet", json_string(swl_version()));
    json_object_set_new(o, "cpu_level", json_string(f->m.cpu_level));
    json_object_set_new(o, "cpus", json_integer(f->m.n_cpus));
    set_bytes(o, "memory_total", f->m.memory_total);
    set_bytes(o, "memory_available", f->m.memory_available);
    json_object_set_new(o, "cgroup_limit", f->m.group_limit ? json_integer((json_int_t)f->m.group_limit) : json_null());
    set_bytes(o, "memory_budget", f->m.memory_budget);
    json_object_set_new(o, "memory_read", json_real(f->m.memory_read));
    json_object_set_new(o, "folder", out_string(f->dir));
    json_object_set_new(o, "file_system", f->file_system[0] ? json_string(f->file_system) : json_null());
    json_object_set_new(o, "read_ahead_kb", f->read_ahead_kb >= 0 ? json_integer(f->read_ahead_kb) : json_null());
    set_bytes(o, "disk_free", f->m.disk_free);
    json_object_set_new(o, "drive_read", json_real(f->m.drive_read));
    json_object_set_new(o, "drive_write", json_real(f->m.drive_write));
    set_bytes(o, "drive_read_bytes", f->m.drive_read_bytes);
    json_object_set_new(o, "drive_direct", json_boolean(f->m.drive_direct));
    json_object_set_new(o, "problem", f->problem[0] ? out_string(f->problem) : json_null());
    for (int i = 0; i < f->n_traps; i++)
        json_array_append_new(traps, json_string(f->traps[i]));
    json_object_set_new(o, "traps", traps);
    json_object_set_new(o, "models", models_json(f));
    out_json(o);
}

/* The folder of models, or the nearest one above that exists. */
static swl_status choose_dir(findings *f, const arguments *a, swl_error *err)
{
    struct stat sb;
    swl_status st = SWL_OK;

    if (a->n_operands)
        snprintf(f->dir, sizeof f->dir, "%s", a->operands[0]);
    else
        st = place_nearest(f->dir, err);
    if (st)
        return st;
    if (stat(f->dir, &sb) || !S_ISDIR(sb.st_mode))
        return fail(err, SWL_E_NOT_FOUND, "there is no directory %s", f->dir);
    return SWL_OK;
}

swl_status run_doctor(const arguments *a, swl_error *err)
{
    findings *f = calloc(1, sizeof *f);
    swl_error problem = {0};
    swl_status st = f ? choose_dir(f, a, err) : fail(err, SWL_E_NOMEM, "out of memory");

    if (!st) {
        f->read_ahead_kb = -1;
        if (swl_machine_look(f->dir, true, &f->m, &problem))
            snprintf(f->problem, sizeof f->problem, "%s", problem.message);
        look_for_traps(f);
        for (int i = 0; i < N_KNOWN; i++)
            known_judge(&f->m, &known_models[i], &f->models[i]);
        if (opt_on(a, OPT_JSON)) {
            print_json(f);
        } else {
            print_machine(f);
            print_models(f);
        }
    }
    free(f);
    return st;
}
