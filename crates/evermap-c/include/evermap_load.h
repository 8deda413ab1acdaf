/*
 * evermap_load.h - a file's bytes as memory, by the cheapest method that the kernel offers.
 *
 *     evermap_image *image;
 *     if (evermap_load("model.bin", NULL, &image) != EM_OK)
 *         return fprintf(stderr, "%s\n", em_last_error_message()), 1;
 *     const float *weights = evermap_image_address(image);
 *     ...
 *     evermap_image_close(image);
 *
 * The bytes of a file can be read, mapped, or written by the device into the program's own memory
 * (takeover). The best method depends on the page cache, the file system and the use of the bytes;
 * em_load_options describes this use. An image can be written to; writes never go to the file.
 *
 * The sections on results, handles, units and callbacks in evermap.h apply here as well. No store
 * is needed.
 *
 * MEMORY. An image is one range of addresses, evermap_image_length() bytes from
 * evermap_image_address(), at the same place until evermap_image_close(). If it begins at a
 * multiple of 4096 in the file, it does so in memory. An access to bytes of an on-demand image
 * (method "takeover-on-demand") waits until they are loaded. Bytes that cannot be loaded, because
 * the disk fails or the file was changed, raise SIGBUS; the memory never holds wrong bytes. Bytes
 * that evermap_image_ensure() or evermap_image_wait() confirmed never raise a signal.
 *
 * SYSTEM CALLS. For an on-demand image that does not serve system calls
 * (evermap_image_serves_system_calls()), a system call on bytes that are not loaded yet fails with
 * EFAULT: call evermap_image_ensure() first.
 *
 * THREADS. Any number of threads may read one image and call functions with it at the same time;
 * its memory is shared like any other. evermap_image_advise(), evermap_image_close() and the first
 * evermap_image_writable_address() need exclusive use of the image: they return EM_BUSY, and change
 * nothing, while another thread is inside a function with the same image, and every other function
 * called during their execution returns EM_BUSY. They must also exclude loads and stores of bytes,
 * which the library cannot detect: evermap_image_advise() in its range, the other two in the whole
 * image.
 *
 * FORK. A child has no handles: every function returns EM_FORKED there, including evermap_load().
 * Only if its parent did not use the library before the fork, the child can use it itself. The
 * child has the memory of an image like any memory, at the address that the parent got: neither
 * sees the other's writes (with method "clone", it does). An image that is still being loaded is in
 * the child if the fork may wait for it (EM_LOAD_FORK_FINISH, the default); else its addresses are
 * unmapped in the child, and touching them is a fault. Programs that are started (posix_spawn,
 * vfork and exec) are not affected.
 */
#ifndef EVERMAP_LOAD_H
#define EVERMAP_LOAD_H

#include "evermap.h"

#ifdef __cplusplus
extern "C" {
#endif

/** An open image: a handle like em_store. */
typedef struct evermap_image evermap_image;
/** Open rules for files: a handle like em_store. */
typedef struct evermap_rules evermap_rules;

/** Order in which an image will be touched. */
typedef enum em_load_order {
    EM_LOAD_ORDER_UNKNOWN = 0,
    EM_LOAD_ORDER_SEQUENTIAL = 1, /**< from beginning to end */
    EM_LOAD_ORDER_RANDOM = 2      /**< in no order */
} em_load_order;

/** Preferred latency. */
typedef enum em_load_latency {
    EM_LOAD_LATENCY_FIRST_USE = 0, /**< early first use, before the load is complete */
    EM_LOAD_LATENCY_FINISH = 1     /**< early completion; the image is used afterwards */
} em_load_latency;

/** Treatment of the page cache after the load. */
typedef enum em_load_cache {
    EM_LOAD_CACHE_AUTO = 0, /**< whatever is fastest */
    EM_LOAD_CACHE_KEEP = 1, /**< keep the file cached for other programs or the next run */
    EM_LOAD_CACHE_DROP = 2  /**< drop the pages that the load brought into the cache */
} em_load_cache;

/** Behaviour of a fork while an image is being loaded. */
typedef enum em_load_fork {
    EM_LOAD_FORK_FINISH = 0, /**< the fork waits until it is complete; the child has it */
    EM_LOAD_FORK_WITHOUT = 1 /**< the fork does not wait; the child does not have it */
} em_load_fork;

/** Expected use of a part of an image. */
typedef enum em_advice {
    EM_ADVICE_WRITE_SOON = 0, /**< written: if the file is mapped, each unwritten window (2 MiB)
                                   becomes private in this call, as a huge page, which saves a copy
                                   and a fault for each page; on demand, it is loaded first */
    EM_ADVICE_READ_ONLY = 1,  /**< read only: read ahead, if the file is mapped; on demand and with
                                   `may_map`, missing windows map the file and take no memory */
    EM_ADVICE_NEVER = 2,      /**< not touched: nothing is read ahead; an access still loads it */
    EM_ADVICE_SEQUENTIAL = 3  /**< touched soon, in order */
} em_advice;

/** Use of a recording by a load. */
typedef enum em_recording_use {
    EM_RECORDING_NONE = 0,     /**< none was requested */
    EM_RECORDING_MADE = 1,     /**< it is being made */
    EM_RECORDING_NOT_MADE = 2, /**< it is impossible: evermap_image_why() says why */
    EM_RECORDING_REPLAYED = 3, /**< the load started with it */
    EM_RECORDING_IGNORED = 4   /**< it does not match the file: evermap_image_why() says why */
} em_recording_use;

/** A share of zero, because 0 means that the share is not known. */
#define EM_LOAD_NONE UINT32_MAX

/** Options for a load, and the expected use of the image. Start with EM_LOAD_OPTIONS_DEFAULT; a
 * zero or NULL is the default of its field. `size` is sizeof(em_load_options). */
typedef struct em_load_options {
    size_t size;
    /** Name of the only method to use: "read", "read-huge", "read-uncached", "mmap",
     * "mmap-huge", "mmap-willneed", "mmap-populate-read", "mmap-populate-write", "mmap-shared",
     * "takeover", "takeover-on-demand", "clone". Default: chosen by the library. Methods that
     * begin with "mmap" need `may_map`, or a file that cannot be changed. */
    const char *method;
    /** Rules: the first one that matches the file supplies options that are not set here, see
     * evermap_rules_read(). NULL: none. */
    const evermap_rules *rules;
    /** File of a recording. If it exists and matches, the image is loaded by it; else the image
     * is recorded, and the recording is saved there when the image is closed (errors of saving
     * are not reported: see evermap_image_recording()). A file that is not a recording is
     * EM_MALFORMED, and never overwritten. NULL: none. */
    const char *recording;
    /** File of a recording for loading the image: in its order, and by the best method for the
     * pages that were touched and written. A recording of another version or range of the file
     * is ignored, and the report says so. NULL: none. */
    const char *replay;
    /** Offset in the file at which the image begins. */
    uint64_t begin_bytes;
    /** Length in bytes. Default: up to the end of the file. */
    uint64_t length_bytes;
    /** Maximum private memory. Default: the memory available to the system and the control
     * groups. */
    uint64_t memory_bytes_max;
    /** Pages out of 1000 that will be touched: 1 to 1000, or EM_LOAD_NONE. Default: not known,
     * which counts as all. */
    uint32_t touched_permille;
    /** Pages out of 1000 that will be written. Default: not known, which counts as all that are
     * touched. */
    uint32_t written_permille;
    /** An em_load_order. */
    uint32_t order;
    /** An em_load_latency. */
    uint32_t latency;
    /** An em_load_cache. */
    uint32_t cache;
    /** An em_load_fork. */
    uint32_t fork;
    /** Threads of methods that read. Default: the number of processors, up to 4; 8 if the file
     * system decompresses. */
    uint32_t threads;
    /** Not zero: methods that map the file are allowed. This is a PROMISE that the file, or the
     * range of it, is not changed or truncated while the image is open: else its bytes change
     * under the program, or raise SIGBUS. */
    uint32_t may_map;
    /** Not zero: a rule with `unchanging = true` counts as `may_map`. The same PROMISE, for all
     * such files. */
    uint32_t trust_rules;
    /** Not zero: the image records its use, for evermap_image_recording(). Each 64 KiB are
     * loaded when they are first touched, by a fault and a copy, and nothing is loaded earlier:
     * use it for one run in many. If recording is impossible, the image is loaded as if this
     * were zero. Set at most one of `record`, `recording` and `replay`. */
    uint32_t record;
} em_load_options;

#define EM_LOAD_OPTIONS_DEFAULT \
    { sizeof(em_load_options), NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** Facts about a file and this machine before a load. Set `size` to sizeof(em_load_facts) before
 * the call; a library with a shorter struct fills only that part. */
typedef struct em_load_facts {
    size_t size;
    uint64_t bytes;              /**< bytes to load */
    uint64_t resident_bytes;     /**< bytes of them in the page cache; UINT64_MAX if unknown */
    uint64_t dirty_bytes;        /**< bytes of them not yet on the disk */
    uint64_t direct_block_bytes; /**< block size of direct reads; 0 if impossible */
    uint64_t available_bytes;    /**< available memory; UINT64_MAX if unknown */
    uint64_t device_bytes_per_s; /**< read rate of the device; 0 if unknown */
    uint32_t processors;         /**< processors that this process may use */
    uint32_t is_in_memory;       /**< not zero: the file system keeps files in memory only */
    uint32_t is_compressed;      /**< not zero: read-only file system that may compress files */
    uint32_t shares_blocks;      /**< not zero: the file system can share blocks between files */
    uint32_t is_unchangeable;    /**< not zero: the file cannot change; `may_map` is not needed */
    uint32_t reserved;           /**< zero */
    char file_system[32];        /**< name of the file system */
    char available_limit[32];    /**< the limiter of the memory, such as "the control group" */
} em_load_facts;

/** One candidate method. Its texts live until the callback returns. */
typedef struct em_load_choice {
    size_t size;            /**< sizeof(em_load_choice) of the library */
    const char *method;     /**< name of the method */
    const char *why;        /**< reason for its rank, a sentence */
    uint32_t threads;       /**< threads of methods that read */
    uint32_t maps_the_file; /**< not zero: shows pages of the file, not private memory */
} em_load_choice;

/** Called with each candidate, the best first; return false to stop. */
typedef bool (*em_load_choice_callback)(const em_load_choice *choice, void *context);

/** Memory of an image. Set `size` as in em_load_facts. */
typedef struct em_residency {
    size_t size;
    uint64_t private_bytes;   /**< private pages of this process */
    uint64_t huge_bytes;      /**< private bytes in huge pages; 0 if unknown (before Linux 6.7) */
    uint64_t file_bytes;      /**< pages of the file's cache that are mapped */
    uint64_t swapped_bytes;   /**< bytes swapped out */
    uint64_t cached_bytes;    /**< bytes of the loaded range in the page cache, mapped or not */
    uint64_t duplicate_bytes; /**< bytes both in the page cache and in private pages */
} em_residency;

/** Method, reason and costs of an image. Set `size` as in em_load_facts. Times count from the
 * beginning of the load; faults, switches and processor times are those of the process from then
 * until completion, or until now. */
typedef struct em_load_report {
    size_t size;
    uint64_t bytes;                /**< bytes of the image */
    uint64_t first_use_ns;         /**< time until the first byte was usable; 0 if it is not yet */
    uint64_t complete_ns;          /**< time until all bytes were usable; 0 if they are not yet */
    uint64_t wall_ns;              /**< elapsed time */
    uint64_t user_ns;              /**< processor time in user mode */
    uint64_t system_ns;            /**< processor time in the kernel */
    uint64_t minor_faults;         /**< page faults without the disk */
    uint64_t major_faults;         /**< page faults with disk access */
    uint64_t voluntary_switches;   /**< because a thread waited */
    uint64_t involuntary_switches; /**< because the scheduler ran another thread */
    uint64_t peak_resident_bytes;  /**< peak memory of the process; 0 if unknown */
    uint64_t private_bytes;        /**< current value, as in em_residency */
    uint64_t huge_bytes;           /**< current value, as in em_residency */
    uint64_t file_bytes;           /**< current value, as in em_residency */
    uint64_t swapped_bytes;        /**< current value, as in em_residency */
    uint64_t cached_bytes;         /**< current value, as in em_residency */
    uint64_t duplicate_bytes;      /**< current value, as in em_residency */
    uint64_t windows_on_demand;    /**< windows (2 MiB) for which a thread waited */
    uint64_t windows_streamed;     /**< windows loaded before a thread waited */
    uint64_t direct_bytes;         /**< bytes read past the page cache */
    uint64_t buffered_bytes;       /**< bytes read through the page cache */
    uint64_t hole_bytes;           /**< holes in the file */
    uint64_t moves_retried;        /**< moves of pages that the kernel wanted retried */
    uint64_t pages_copied;         /**< pages copied because they could not be moved */
    uint64_t windows_read_again;   /**< windows read through the cache after a failed direct read */
    uint64_t threads_replaced;     /**< threads that were killed and replaced */
    uint32_t device_permille;      /**< share of the device's rate, in thousandths; 0 if unknown */
    uint32_t serves_system_calls;  /**< not zero: system calls can use bytes not loaded yet */
    uint32_t threads;              /**< threads of methods that read */
    uint32_t refused;              /**< methods that were tried before and failed */
    uint32_t recording;            /**< an em_recording_use */
    uint32_t reserved;             /**< zero */
    char method[32];               /**< name of the method */
    char why[224];                 /**< its reason, truncated to fit; see evermap_image_why() */
} em_load_report;

/** Loads a file, or a range of it. The image is usable when this returns, and completely loaded
 * unless it is on demand. Its bytes are those of one version of the file. `options` may be NULL.
 * Takes as long as reading the file, or as mapping it. Uses no more private memory than is
 * available. A file of no bytes is an image of no bytes.
 * Errors: EM_IO when it cannot be opened, EM_NOT_PERMITTED, EM_NOT_A_FILE; EM_OUT_OF_BOUNDS for
 * a range outside of the file; EM_NO_MEMORY, before anything is read; EM_UNREADABLE;
 * EM_SOURCE_CHANGED when the file changes during the load; EM_REFUSED when the requested method
 * cannot do it; EM_MALFORMED for an invalid recording; EM_CLOSED for rules that are not open;
 * EM_TOO_MANY_OPEN, EM_FORKED. */
em_status evermap_load(const char *path, const em_load_options *options, evermap_image **image);

/** One file of many. Lists of these structs cannot grow: the size is fixed. */
typedef struct em_load_file {
    const char *path;
    const em_load_options *options; /**< may be NULL */
} em_load_file;

/** Loads many files together, by up to eight threads in the order of the list, and plans the
 * memory for all of them: the sum fits, or the last ones are mapped if that is allowed, or
 * EM_NO_MEMORY. Files of less than 16 MiB are loaded completely; of larger ones 64 may be on
 * demand, and two are streamed at a time, in order. `images` has room for `count` handles, each
 * of which is closed separately. With `statuses` NULL, all files are loaded, or none. Else it
 * has room for `count` statuses, one for each file, and the handle of a file that could not be
 * loaded is NULL. The call fails with the error of the first failing file in the list; an
 * invalid argument fails the whole call before anything is loaded, and nothing is written then.
 * Errors: as evermap_load(). */
em_status evermap_load_all(const em_load_file *files, size_t count, evermap_image **images,
                           em_status *statuses);

/** Reports the facts known before a load and the candidate methods, the best first. Opens the
 * file and reads nothing of it. `options`, `facts` and `callback` may be NULL. Errors: as
 * evermap_load() before it reads. */
em_status evermap_load_probe(const char *path, const em_load_options *options, em_load_facts *facts,
                             em_load_choice_callback callback, void *context);

/** Returns the address of the first byte, for reading; never NULL for an open image. Valid until
 * evermap_image_close().
 * NULL: EM_CLOSED, EM_FORKED. */
const void *evermap_image_address(const evermap_image *image);

/** Returns the same address, for writing. The file does not change. An image by "mmap-shared"
 * becomes private at the first call, and its pages are copied when they are written; other
 * images are always private.
 * NULL: EM_NO_MEMORY, EM_IO, EM_BUSY, EM_CLOSED, EM_FORKED. */
void *evermap_image_writable_address(evermap_image *image);

/** Returns the length in bytes. 0 for an empty image, and for EM_CLOSED and EM_FORKED. */
size_t evermap_image_length(const evermap_image *image);

/** Waits until `length` bytes from `begin` are loaded: system calls can use them, and reading
 * them raises no signal. Costs nothing when they are loaded already.
 * Errors: EM_UNREADABLE, EM_SOURCE_CHANGED, EM_THREADS_LOST; EM_OUT_OF_BOUNDS beyond the image;
 * EM_BUSY, EM_CLOSED, EM_FORKED. */
em_status evermap_image_ensure(const evermap_image *image, size_t begin, size_t length);

/** Requests that bytes of an on-demand image be loaded before others, without waiting. Errors:
 * EM_OUT_OF_BOUNDS, EM_BUSY, EM_CLOSED, EM_FORKED. */
em_status evermap_image_want(const evermap_image *image, size_t begin, size_t length);

/** Waits until everything is loaded that no advice excluded. For a recorded image this returns
 * at once; only if system calls are not served, it loads everything and ends the recording.
 * Errors: as evermap_image_ensure(). */
em_status evermap_image_wait(const evermap_image *image);

/** Declares the expected use of `length` bytes from `begin`. Changes none of them. Takes effect
 * in windows of 2 MiB that lie completely in the range, or, if it removes nothing, in all
 * windows that it touches. No thread may access the range during the call.
 * Errors: EM_OUT_OF_BOUNDS; EM_INVALID_ARGUMENT for an unknown advice; if it reads, those of
 * evermap_load(); EM_BUSY, EM_CLOSED, EM_FORKED. */
em_status evermap_image_advise(evermap_image *image, size_t begin, size_t length, em_advice advice);

/** Checks that the file is still the loaded version; EM_SOURCE_CHANGED says how it changed.
 * Costs a system call.
 * Errors: EM_IO, EM_BUSY, EM_CLOSED, EM_FORKED. */
em_status evermap_image_check(const evermap_image *image);

/** Reports the bytes that are usable and the total. Costs nothing. Errors: EM_BUSY, EM_CLOSED,
 * EM_FORKED. */
em_status evermap_image_progress(const evermap_image *image, uint64_t *loaded_bytes,
                                 uint64_t *total_bytes);

/** Tells if system calls can use bytes that are not loaded yet, or all are loaded. Errors:
 * EM_BUSY, EM_CLOSED, EM_FORKED. */
em_status evermap_image_serves_system_calls(const evermap_image *image, bool *serves);

/** Reports the memory of the image. Walks its page tables. Errors: EM_INVALID_ARGUMENT, EM_BUSY,
 * EM_CLOSED, EM_FORKED. */
em_status evermap_image_residency(const evermap_image *image, em_residency *residency);

/** Reports method, reason and costs of the image. Same cost and errors as
 * evermap_image_residency(). */
em_status evermap_image_report(const evermap_image *image, em_load_report *report);

/** Explains the choice: the method, its reason, the methods tried before and why they failed.
 * Writes the text into `buffer`, truncated to `size` bytes with the zero byte; NULL and 0 write
 * nothing. Returns the length of the whole text without the zero byte.
 * 0: EM_INVALID_ARGUMENT, EM_BUSY, EM_CLOSED, EM_FORKED. */
size_t evermap_image_why(const evermap_image *image, char *buffer, size_t size);

/** Use of an image. Set `size` as in em_load_facts. Shares and order have the form of
 * em_load_options. */
typedef struct em_recording {
    size_t size;
    uint64_t windows_touched;  /**< touched windows of 64 KiB */
    uint32_t touched_permille; /**< share of bytes in touched windows, rounded up; or EM_LOAD_NONE */
    uint32_t written_permille; /**< share of bytes in written pages (before Linux 6.7: in windows
                                    first touched by a write) */
    uint32_t order;            /**< an em_load_order */
    uint32_t reserved;         /**< zero */
} em_recording;

/** Reports the use of a recorded image until now. Saves the recording at `path`, completely or
 * not at all, unless `path` is NULL; `recording` may be NULL as well. Walks the page tables. A
 * recording ends when the process forks during it (EM_LOAD_FORK_FINISH), and by
 * evermap_image_wait() if system calls are not served.
 * Errors: EM_INVALID_ARGUMENT for an image that is not recorded; EM_IO, EM_NOT_PERMITTED,
 * EM_DISK_FULL, EM_BUSY, EM_CLOSED, EM_FORKED. */
em_status evermap_image_recording(const evermap_image *image, const char *path,
                                  em_recording *recording);

/** Closes the image and unmaps its addresses. Stops an unfinished load, and waits for reads that
 * the disk is executing. Errors: EM_CLOSED, EM_FORKED; EM_BUSY while another thread is inside a
 * function with it, and it stays open. */
em_status evermap_image_close(evermap_image *image);

/*
 * RULES supply options for files by their names. They are TOML; the first of the [[file]] tables
 * whose pattern matches counts:
 *
 *     [[file]]
 *     pattern = "*.idx"         (names wherever they are; with a slash, whole paths)
 *     touched = 0.05
 *     written = 0
 *     order = "random"
 *
 * docs/load.md has all keys. Rules never change; any number of threads may use them and close them.
 */

/** Reads a file of rules. Relative patterns and recordings refer to its directory. Errors:
 * EM_IO, EM_NOT_PERMITTED; EM_MALFORMED names the line and the error; EM_TOO_MANY_OPEN,
 * EM_FORKED. */
em_status evermap_rules_read(const char *path, evermap_rules **rules);

/** Parses rules from a text. Relative paths refer to the current directory. Errors:
 * EM_MALFORMED, EM_TOO_MANY_OPEN, EM_FORKED. */
em_status evermap_rules_parse(const char *text, evermap_rules **rules);

/** Tells if a rule matches a file. Does not access the file. Errors: EM_CLOSED, EM_FORKED. */
em_status evermap_rules_match(const evermap_rules *rules, const char *path, bool *matches);

/** Closes the handle. Loads that use the rules continue. Errors: EM_CLOSED, EM_FORKED. */
em_status evermap_rules_close(evermap_rules *rules);

#ifdef __cplusplus
}
#endif

#endif /* EVERMAP_LOAD_H */
