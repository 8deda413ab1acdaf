/*
 * evermap_load.h - a file's bytes as memory, by the cheapest way that the kernel has.
 *
 *     evermap_image *image;
 *     if (evermap_load("model.bin", NULL, &image) != EM_OK)
 *         return fprintf(stderr, "%s\n", em_last_error_message()), 1;
 *     const float *weights = evermap_image_address(image);
 *     ...
 *     evermap_image_close(image);
 *
 * The bytes of a file can be read, mapped, or written by the device into memory that is the program's own
 * (takeover). Which is best depends on what is cached, on the file system and on what will be done with the bytes;
 * what is known of that is said in em_load_options. An image can be written to; what is written never goes to the file.
 *
 * What evermap.h says of results, handles, units and callbacks holds here as well. No store is needed.
 *
 * MEMORY. An image is one range of addresses, from evermap_image_address() on, evermap_image_length() bytes long, at the same
 * place until evermap_image_close(). Where it begins at a multiple of 4096 in the file it does so in memory. Bytes of an image that comes on demand (method "takeover-on-demand") are waited for by whoever looks at
 * them first. Bytes that cannot be had, because the disk fails or somebody changed the file, raise SIGBUS: never are wrong
 * bytes there. What evermap_image_ensure() and evermap_image_wait() let through never raises anything.
 *
 * SYSTEM CALLS. In an image on demand that does not serve them (evermap_image_serves_system_calls()), a system call
 * that is given bytes which are not there yet fails with EFAULT: evermap_image_ensure() first.
 *
 * THREADS. Any number of threads may look at one image and call functions with it at once; its memory is theirs to share
 * as any other is. evermap_image_advise(), evermap_image_close() and the first evermap_image_writable_address() must be alone with it: they get
 * EM_BUSY, and nothing has happened, while another thread is inside of a function with the same image, and every other function
 * called meanwhile gets it. What they must also be alone with, and what cannot be noticed, are loads and stores of bytes:
 * evermap_image_advise() with the range it is given, the other two with all of the image.
 *
 * FORK. A child has no handles: every function gives EM_FORKED there, evermap_load() too, unless its parent did not use the
 * library before. The memory of an image is in the child as any memory is, at the address that the parent asked for: what either
 * writes the other does not see (method "clone": does). An image that is still being loaded is in the child if the fork may wait for it
 * (EM_LOAD_FORK_FINISH, the default); else the addresses are not there, and touching them is a fault. Programs that are started
 * (posix_spawn, vfork and exec) are not concerned.
 */
#ifndef EVERMAP_LOAD_H
#define EVERMAP_LOAD_H

#include "evermap.h"

#ifdef __cplusplus
extern "C" {
#endif

/** An image that is open: a handle, as em_store is. */
typedef struct evermap_image evermap_image;
/** Rules for files that are open: a handle, as em_store is. */
typedef struct evermap_rules evermap_rules;

/** In which order an image will be touched. */
typedef enum em_load_order {
    EM_LOAD_ORDER_UNKNOWN = 0,
    EM_LOAD_ORDER_SEQUENTIAL = 1, /**< from the beginning to the end */
    EM_LOAD_ORDER_RANDOM = 2      /**< here and there */
} em_load_order;

/** What is to be soon. */
typedef enum em_load_latency {
    EM_LOAD_LATENCY_FIRST_USE = 0, /**< the first use: the image can be used before all of it is there */
    EM_LOAD_LATENCY_FINISH = 1     /**< the finish: all of it is wanted before any is used */
} em_load_latency;

/** What is to be with the page cache afterwards. */
typedef enum em_load_cache {
    EM_LOAD_CACHE_AUTO = 0, /**< whatever is fastest now */
    EM_LOAD_CACHE_KEEP = 1, /**< others will want the file, or this program the next time */
    EM_LOAD_CACHE_DROP = 2  /**< nobody will: what the load brought there is dropped */
} em_load_cache;

/** What happens when the process forks while an image is being loaded. */
typedef enum em_load_fork {
    EM_LOAD_FORK_FINISH = 0, /**< the fork waits until it is complete; the child has it */
    EM_LOAD_FORK_WITHOUT = 1 /**< the fork does not wait; the child does not have it */
} em_load_fork;

/** What will be done with a part of an image. */
typedef enum em_advice {
    EM_ADVICE_WRITE_SOON = 0, /**< written: its pages become private now, as huge pages, instead of one by one by a copy and a
                                   fault each. Reads what is missing: first, if on demand; else at once, in this call */
    EM_ADVICE_READ_ONLY = 1,  /**< read only: on demand and with `may_map`, windows (2 MiB) that are missing show the file and
                                   take no memory */
    EM_ADVICE_NEVER = 2,      /**< not touched: nothing is read ahead. Touched all the same, it is there */
    EM_ADVICE_SEQUENTIAL = 3  /**< touched in order, soon */
} em_advice;

/** What a load did with a recording. */
typedef enum em_recording_use {
    EM_RECORDING_NONE = 0,     /**< nobody spoke of one */
    EM_RECORDING_MADE = 1,     /**< it is being made */
    EM_RECORDING_NOT_MADE = 2, /**< it was to be made, and cannot: evermap_image_why() says why */
    EM_RECORDING_REPLAYED = 3, /**< the load began with it */
    EM_RECORDING_IGNORED = 4   /**< it is of another version or range of the file: evermap_image_why() says which */
} em_recording_use;

/** A share of nothing, where 0 says that the share is not known. */
#define EM_LOAD_NONE UINT32_MAX

/** Wishes for a load, and what is known of what will be done with the image. Begin with EM_LOAD_OPTIONS_DEFAULT; a zero
 * or a NULL is the default of its field. `size` is sizeof(em_load_options). */
typedef struct em_load_options {
    size_t size;
    /** This way or not at all, by its name: "read", "read-huge", "read-uncached", "mmap", "mmap-huge", "mmap-willneed",
     * "mmap-populate-read", "mmap-populate-write", "mmap-shared", "takeover", "takeover-on-demand", "clone". Default: picked.
     * Those that begin with "mmap" need `may_map`, or a file that nothing can change. */
    const char *method;
    /** The first of these that matches the file says what is not said here: see evermap_rules_read(). NULL: none. */
    const evermap_rules *rules;
    /** The file of a recording. If it is there and fits, the image is loaded by it; else the image is recorded, and it is saved there when
     * the image is closed (what goes wrong then nobody learns: see evermap_image_recording()). A file that is no recording is EM_MALFORMED, and
     * never written over. NULL: none. */
    const char *recording;
    /** The file of a recording that the image is loaded by: in its order, and by the method that is best for what was touched and
     * written. One of another version or range of the file is ignored, and the report says so. NULL: none. */
    const char *replay;
    /** Where in the file the image begins. */
    uint64_t begin_bytes;
    /** How many bytes it has. Default: up to the file's end. */
    uint64_t length_bytes;
    /** No more private memory than this. Default: what the system and control groups leave. */
    uint64_t memory_bytes_max;
    /** How many of 1000 pages will be touched: 1 to 1000, or EM_LOAD_NONE. Default: not known, which counts as all. */
    uint32_t touched_permille;
    /** The same of pages that will be written. Default: not known, which counts as all that are touched. */
    uint32_t written_permille;
    /** An em_load_order. */
    uint32_t order;
    /** An em_load_latency. */
    uint32_t latency;
    /** An em_load_cache. */
    uint32_t cache;
    /** An em_load_fork. */
    uint32_t fork;
    /** Threads, where threads read. Default: as many as processors, up to 4; 8 where the file system decompresses. */
    uint32_t threads;
    /** Not zero: methods that map the file may be used. This is a PROMISE that nobody changes or truncates the file, or the range of
     * it, while the image is open: else its bytes change under the program, or raise SIGBUS. */
    uint32_t may_map;
    /** Not zero: a rule that says `unchanging = true` is as good as `may_map`. The same PROMISE, for all such files. */
    uint32_t trust_rules;
    /** Not zero: the image notes how it is used, for evermap_image_recording(). Each 64 KiB come when they are first touched, by a fault and
     * a copy, and nothing comes before: for one run in many. Where that is not possible it is loaded as if this were zero. At most one of
     * `record`, `recording` and `replay`. */
    uint32_t record;
} em_load_options;

#define EM_LOAD_OPTIONS_DEFAULT \
    { sizeof(em_load_options), NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** What is known of a file and of this machine before a load. Set `size` to sizeof(em_load_facts) before the call; a library that
 * knows a shorter one fills that. */
typedef struct em_load_facts {
    size_t size;
    uint64_t bytes;              /**< to load */
    uint64_t resident_bytes;     /**< of these, what is in the page cache; UINT64_MAX where the kernel does not tell */
    uint64_t dirty_bytes;        /**< of these, what is not on the disk yet */
    uint64_t direct_block_bytes; /**< blocks of reads past the page cache; 0 where there are none */
    uint64_t available_bytes;    /**< memory that can be had; UINT64_MAX where nobody tells */
    uint64_t device_bytes_per_s; /**< what the device reads; 0 if not known */
    uint32_t processors;         /**< that this process may use */
    uint32_t is_in_memory;       /**< not zero: the file system keeps files in memory only */
    uint32_t is_compressed;      /**< not zero: it can only be read, and may keep the file compressed */
    uint32_t shares_blocks;      /**< not zero: it can share blocks between files */
    uint32_t is_unchangeable;    /**< not zero: nothing can change the file; mapping it needs no promise */
    uint32_t reserved;           /**< zero */
    char file_system[32];        /**< its name */
    char available_limit[32];    /**< who limits memory, as "the control group" */
} em_load_facts;

/** One way that would be tried. Its texts live as long as the callback runs. */
typedef struct em_load_choice {
    size_t size;            /**< sizeof(em_load_choice) of the library */
    const char *method;     /**< its name */
    const char *why;        /**< why it has its place, a sentence */
    uint32_t threads;       /**< for those that read */
    uint32_t maps_the_file; /**< not zero: shows pages of the file, not private memory */
} em_load_choice;

/** Called with one choice after another, the best first; false for no more. */
typedef bool (*em_load_choice_callback)(const em_load_choice *choice, void *context);

/** What of an image is in memory. Set `size` as in em_load_facts. */
typedef struct em_residency {
    size_t size;
    uint64_t private_bytes;   /**< private pages: this process's alone */
    uint64_t huge_bytes;      /**< of these, in huge pages; 0 where the kernel does not tell (before Linux 6.7) */
    uint64_t file_bytes;      /**< pages of the file's cache that are mapped */
    uint64_t swapped_bytes;   /**< swapped out */
    uint64_t cached_bytes;    /**< of the loaded range, in the page cache, mapped or not */
    uint64_t duplicate_bytes; /**< in the page cache and in private pages as well */
} em_residency;

/** How an image was made, why, and what that cost. Set `size` as in em_load_facts. Times count from the beginning of the load; faults,
 * switches and processor times are the process's from then until it was complete, or until now. */
typedef struct em_load_report {
    size_t size;
    uint64_t bytes;                /**< of the image */
    uint64_t first_use_ns;         /**< until the first byte could be used; 0 if it cannot yet */
    uint64_t complete_ns;          /**< until all could; 0 if they cannot yet */
    uint64_t wall_ns;              /**< time that passed */
    uint64_t user_ns;              /**< processor time in programs */
    uint64_t system_ns;            /**< processor time in the kernel */
    uint64_t minor_faults;         /**< page faults without the disk */
    uint64_t major_faults;         /**< page faults with it */
    uint64_t voluntary_switches;   /**< because a thread waited */
    uint64_t involuntary_switches; /**< because another one was let on */
    uint64_t peak_resident_bytes;  /**< the most memory that the process ever had; 0 if not known */
    uint64_t private_bytes;        /**< now, as in em_residency */
    uint64_t huge_bytes;           /**< the same */
    uint64_t file_bytes;           /**< the same */
    uint64_t swapped_bytes;        /**< the same */
    uint64_t cached_bytes;         /**< the same */
    uint64_t duplicate_bytes;      /**< the same */
    uint64_t windows_on_demand;    /**< windows (2 MiB) that somebody waited for */
    uint64_t windows_streamed;     /**< windows that came before anybody waited */
    uint64_t direct_bytes;         /**< read past the page cache */
    uint64_t buffered_bytes;       /**< read through it */
    uint64_t hole_bytes;           /**< holes in the file */
    uint64_t moves_retried;        /**< moves of pages that the kernel asked to try again */
    uint64_t pages_copied;         /**< pages that were copied as they could not be moved */
    uint64_t windows_read_again;   /**< windows that were read through the cache as they could not be past it */
    uint64_t threads_replaced;     /**< threads that were killed, and replaced */
    uint32_t device_permille;      /**< how much of the device's rate was reached, in thousandths; 0 if not known */
    uint32_t serves_system_calls;  /**< not zero: system calls could be given bytes from the beginning */
    uint32_t threads;              /**< for methods that read */
    uint32_t refused;              /**< methods that were tried before, and did not do */
    uint32_t recording;            /**< an em_recording_use */
    uint32_t reserved;             /**< zero */
    char method[32];               /**< its name */
    char why[224];                 /**< why it was picked, cut to fit; evermap_image_why() has all */
} em_load_report;

/** Loads a file, or a range of it. The image can be used when this returns, and all of it is there unless it comes on
 * demand. Its bytes are those of one version of the file. `options` may be NULL. Takes as long as reading the file, or as
 * mapping it. No private memory is taken beyond what there is. A file of no bytes is an image of no bytes.
 * Errors: EM_IO when it cannot be opened, EM_NOT_PERMITTED, EM_NOT_A_FILE; EM_OUT_OF_BOUNDS for a range that the file does not have;
 * EM_NO_MEMORY, before anything is read; EM_UNREADABLE; EM_SOURCE_CHANGED when somebody changes it meanwhile; EM_REFUSED when the
 * method that was asked for cannot do it; EM_MALFORMED for a recording that is none; EM_CLOSED for rules that are not open;
 * EM_TOO_MANY_OPEN, EM_FORKED. */
em_status evermap_load(const char *path, const em_load_options *options, evermap_image **image);

/** One of many files. Lists of these do not grow: its size is fixed. */
typedef struct em_load_file {
    const char *path;
    const em_load_options *options; /**< may be NULL */
} em_load_file;

/** Loads many files at once, by up to eight threads in the order of the list, and with the memory that all of them take in view: the sum
 * fits, or the last ones are mapped if that is allowed, or EM_NO_MEMORY. Files of less than 16 MiB are there as a whole; of larger ones 64
 * may come on demand, and two are streamed at a time, in order. `images` has room for `count` handles, each of which is closed by itself.
 * `statuses` NULL: all are loaded, or none. Else it has room for `count`, each file gets its status, and NULL for a handle if it
 * could not be loaded. What it fails with is what the first file in the list failed with; an argument that cannot be taken
 * fails the whole call before anything is loaded, and nothing is written then.
 * Errors: as evermap_load(). */
em_status evermap_load_all(const em_load_file *files, size_t count, evermap_image **images,
                           em_status *statuses);

/** What is known before a load, and what would be tried, the best first. Opens the file and touches nothing of it.
 * `options`, `facts` and `callback` may be NULL. Errors: as evermap_load() before it reads anything. */
em_status evermap_load_probe(const char *path, const em_load_options *options, em_load_facts *facts,
                             em_load_choice_callback callback, void *context);

/** The address of the first byte, for reading; never NULL for an image that is open. Good until evermap_image_close().
 * NULL: EM_CLOSED, EM_FORKED. */
const void *evermap_image_address(const evermap_image *image);

/** The same address, for writing too. The file stays as it is. An image by "mmap-shared" becomes private by the first call, and
 * its pages are copied when they are written to; others are private already.
 * NULL: EM_NO_MEMORY, EM_IO, EM_BUSY, EM_CLOSED, EM_FORKED. */
void *evermap_image_writable_address(evermap_image *image);

/** How many bytes it has. 0 for one that has none, and for EM_CLOSED and EM_FORKED. */
size_t evermap_image_length(const evermap_image *image);

/** Waits until `length` bytes from `begin` on are there: system calls can be given them, and looking at them raises nothing. Costs
 * nothing when they are.
 * Errors: EM_UNREADABLE, EM_SOURCE_CHANGED, EM_THREADS_LOST; EM_OUT_OF_BOUNDS beyond the image; EM_BUSY, EM_CLOSED, EM_FORKED. */
em_status evermap_image_ensure(const evermap_image *image, size_t begin, size_t length);

/** Has bytes read before others, and waits for nothing. Errors: EM_OUT_OF_BOUNDS, EM_BUSY, EM_CLOSED, EM_FORKED. */
em_status evermap_image_want(const evermap_image *image, size_t begin, size_t length);

/** Waits until all of it is there that no advice left out. An image that is recorded is there for whoever looks: all of it is brought, and the
 * recording ends, only where system calls are not served. Errors: as evermap_image_ensure(). */
em_status evermap_image_wait(const evermap_image *image);

/** Says what will be done with `length` bytes from `begin` on. Changes none of them. Takes effect in the windows of 2 MiB that lie
 * wholly in the range, or where it takes nothing away in all that it touches. No thread may look at the range or write to it
 * meanwhile.
 * Errors: EM_OUT_OF_BOUNDS; EM_INVALID_ARGUMENT for an advice that there is not; where it reads, those of evermap_load(); EM_BUSY,
 * EM_CLOSED, EM_FORKED. */
em_status evermap_image_advise(evermap_image *image, size_t begin, size_t length, em_advice advice);

/** Whether the file is still what was loaded: EM_SOURCE_CHANGED says what happened to it. Costs a system call.
 * Errors: EM_IO, EM_BUSY, EM_CLOSED, EM_FORKED. */
em_status evermap_image_check(const evermap_image *image);

/** How far the load is: bytes that can be used, and bytes there will be. Costs nothing. Errors: EM_BUSY, EM_CLOSED, EM_FORKED. */
em_status evermap_image_progress(const evermap_image *image, uint64_t *loaded_bytes,
                                 uint64_t *total_bytes);

/** Whether system calls can be given bytes that are not there yet; they can when all are. Errors: EM_BUSY, EM_CLOSED, EM_FORKED. */
em_status evermap_image_serves_system_calls(const evermap_image *image, bool *serves);

/** What of it is in memory now. Walks its page tables. Errors: EM_INVALID_ARGUMENT, EM_BUSY, EM_CLOSED, EM_FORKED. */
em_status evermap_image_residency(const evermap_image *image, em_residency *residency);

/** How it was made, why, and what that cost. Costs what evermap_image_residency() does. Errors: the same. */
em_status evermap_image_report(const evermap_image *image, em_load_report *report);

/** Why it was made as it was: the method, its reason, what was tried before and why that did not do. Written into `buffer`, cut to `size`
 * bytes with the zero byte; NULL and 0 write nothing. Gives the bytes of the whole text without the zero byte.
 * 0: EM_INVALID_ARGUMENT, EM_BUSY, EM_CLOSED, EM_FORKED. */
size_t evermap_image_why(const evermap_image *image, char *buffer, size_t size);

/** How an image was used. Set `size` as in em_load_facts. Shares and order are what an em_load_options takes. */
typedef struct em_recording {
    size_t size;
    uint64_t windows_touched;  /**< windows of 64 KiB */
    uint32_t touched_permille; /**< of the loaded range, what is in windows that were touched; rounded up, EM_LOAD_NONE for none */
    uint32_t written_permille; /**< of it, what is in pages that were written (before Linux 6.7, in windows first touched by a write) */
    uint32_t order;            /**< an em_load_order */
    uint32_t reserved;         /**< zero */
} em_recording;

/** How an image that is recorded was used until now; at the end of its use, how it was used. Saved at `path`, as a whole or not at all,
 * unless that is NULL; `recording` may be NULL as well. Walks its page tables. A recording ends when the process forks while it is made
 * (EM_LOAD_FORK_FINISH), and by evermap_image_wait() where system calls are not served.
 * Errors: EM_INVALID_ARGUMENT for an image that is not recorded; EM_IO, EM_NOT_PERMITTED, EM_DISK_FULL, EM_BUSY, EM_CLOSED, EM_FORKED. */
em_status evermap_image_recording(const evermap_image *image, const char *path,
                                  em_recording *recording);

/** Ends the image; its addresses are no more. A load that is under way is stopped, and the reads that the disk is at are waited
 * for. Errors: EM_CLOSED, EM_FORKED; EM_BUSY while another thread is inside of a function with it, then it stays open. */
em_status evermap_image_close(evermap_image *image);

/*
 * RULES say of files by their names what is wished for them. They are TOML; of the tables [[file]] the first counts whose
 * pattern matches:
 *
 *     [[file]]
 *     pattern = "*.idx"         (names wherever they are; with a slash, whole paths)
 *     touched = 0.05
 *     written = 0
 *     order = "random"
 *
 * docs/load.md has all keys. Rules never change; any number of threads may use them and close them.
 */

/** Reads a file of rules. Patterns and recordings that are relative are so to its directory. Errors: EM_IO, EM_NOT_PERMITTED; EM_MALFORMED
 * says what is wrong in which line; EM_TOO_MANY_OPEN, EM_FORKED. */
em_status evermap_rules_read(const char *path, evermap_rules **rules);

/** The same from a text. What is relative is so to the current directory. Errors: EM_MALFORMED, EM_TOO_MANY_OPEN, EM_FORKED. */
em_status evermap_rules_parse(const char *text, evermap_rules **rules);

/** Whether there is a rule for a file. Asks nothing of the file. Errors: EM_CLOSED, EM_FORKED. */
em_status evermap_rules_match(const evermap_rules *rules, const char *path, bool *matches);

/** Ends the handle. Loads that began by the rules go on. Errors: EM_CLOSED, EM_FORKED. */
em_status evermap_rules_close(evermap_rules *rules);

#ifdef __cplusplus
}
#endif

#endif /* EVERMAP_LOAD_H */
