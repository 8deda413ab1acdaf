/*
 * evermap_transfer.h - files and streams by the cheapest path that the kernel has.
 *
 *     em_transfer_report report = { sizeof report };
 *     if (evermap_copy("from", "to", NULL, &report) != EM_OK)
 *         return fprintf(stderr, "%s\n", em_last_error_message()), 1;
 *     printf("%llu bytes by %s: %s\n", (unsigned long long)report.data_bytes, report.engine, report.why);
 *
 * The method (shared blocks, copy_file_range, splice, mappings, direct I/O, ...) is chosen by the
 * state of the page cache, file system, size and durability. If one method is refused, the next
 * continues. These functions need no store. Their names begin with the library's name, because em_
 * functions that copy are about stores: em_backup().
 *
 * The sections on results, units, threads, callbacks and forked children in evermap.h apply here as
 * well. Several transfers may run at the same time. A peer that disconnects is an error: SIGPIPE is
 * never raised.
 */
#ifndef EVERMAP_TRANSFER_H
#define EVERMAP_TRANSFER_H

#include "evermap.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Guarantee after a successful transfer. */
typedef enum em_copy_durability {
    EM_COPY_DURABILITY_NONE = 0, /**< the kernel has it: a power cut may lose it */
    EM_COPY_DURABILITY_DATA = 1, /**< its bytes are on the disk before it has its name */
    EM_COPY_DURABILITY_FULL = 2  /**< the same, and its name is on the disk too */
} em_copy_durability;

/** Sharing of blocks with the source. */
typedef enum em_reflink {
    EM_REFLINK_AUTO = 0,  /**< if the file system can */
    EM_REFLINK_NEVER = 1, /**< own blocks: damage to one file does not affect the other */
    EM_REFLINK_ALWAYS = 2 /**< fail if blocks cannot be shared */
} em_reflink;

/** Attributes that a copy omits: sums of these are em_transfer_options.without. */
typedef enum em_without {
    EM_WITHOUT_MODE = 1,  /**< permissions: the umask applies */
    EM_WITHOUT_OWNER = 2, /**< user and group */
    EM_WITHOUT_TIMES = 4, /**< times of last access and change */
    EM_WITHOUT_XATTRS = 8 /**< extended attributes, and with them ACLs */
} em_without;

/** Subject of an em_explanation. */
typedef enum em_explained {
    EM_EXPLAINED_USED = 0,     /**< an engine that moved `bytes`; `why` it came first, or "" */
    EM_EXPLAINED_NOT_USED = 1, /**< an engine that was not used to the end, and the reason */
    EM_EXPLAINED_TRIED = 2,    /**< a result of a test on the way */
    EM_EXPLAINED_NOT_KEPT = 3, /**< an attribute `what` that the target lacks; file `path` */
    EM_EXPLAINED_FAILED = 4,   /**< an entry of a directory that could not be copied */
    EM_EXPLAINED_CONNECTION = 5 /**< `bytes` over one connection, by engine `what`, to `path`;
                                      `copies` is unknown */
} em_explained;

/** One line of a transfer's explanation. Its texts live until the callback returns; none is
 * NULL. */
typedef struct em_explanation {
    size_t size;       /**< sizeof(em_explanation) of the library */
    uint32_t kind;     /**< an em_explained */
    uint32_t copies;   /**< copies of each byte by the processor with this engine */
    uint64_t bytes;    /**< bytes moved by this engine */
    const char *what;  /**< the engine, or the attribute */
    const char *path;  /**< the file, or "" */
    const char *why;   /**< a sentence */
} em_explanation;

/** Called with each explanation; return false to stop. */
typedef bool (*em_explanation_callback)(const em_explanation *explanation, void *context);

/** Called about ten times a second while bytes are moved, and once after success, with the bytes
 * that have arrived and the total (0 if unknown). Return false to end the transfer with
 * EM_CANCELLED; after success this has no effect. */
typedef bool (*em_progress_callback)(uint64_t arrived_bytes, uint64_t total_bytes, void *context);

/** Options for a transfer. Start with EM_TRANSFER_OPTIONS_DEFAULT; a zero or NULL is the default
 * of its field. `size` is sizeof(em_transfer_options). An option that a function does not use is
 * EM_INVALID_ARGUMENT; the functions that use an option are in brackets. */
typedef struct em_transfer_options {
    size_t size;
    /** Name of the only engine to use: "read-write", "mmap-write", "mmap-direct", "sendfile",
     * "splice", "dual-pipe", "dual-pipe-interleaved", "copy-file-range", "reflink", "uring",
     * "uring-splice", "uring-direct". Default: chosen by the library. */
    const char *engine;
    /** Cancel flag: a nonzero value, set by another thread or a signal handler, ends the
     * transfer within a tenth of a second. A call that waits for a silent peer ends only if that
     * descriptor is non-blocking, and connecting to a host may take 10 s longer. An int, like
     * sig_atomic_t. */
    const volatile int *cancelled;
    /** Called with the progress. */
    em_progress_callback progress;
    /** Called with explanations after success. */
    em_explanation_callback explain;
    /** Context of both callbacks. */
    void *context;
    /** An em_copy_durability; a receiver ensures it before it confirms to its sender. [copy,
     * move, receive] */
    uint32_t durability;
    /** An em_reflink. [copy, move] */
    uint32_t reflink;
    /** Not zero: read back the stored bytes and compare them with the source, before publishing
     * the name. [copy, send, receive] */
    uint32_t verify;
    /** Not zero: keep a partial copy when interrupted, and continue an existing one. [copy, of a
     * file] */
    uint32_t resume;
    /** Not zero: continue with a directory after entries that cannot be copied. [copy] */
    uint32_t keep_going;
    /** Not zero: skip entries on other file systems than the copied directory. [copy] */
    uint32_t one_file_system;
    /** Threads that copy a directory. Default: the number of processors, up to 8. [copy] */
    uint32_t threads;
    /** Not zero: skip the source's holes, for a target that is empty or has holes or zeros
     * there. [move] */
    uint32_t sparse;
    /** Offset at which to begin, in both files. [move] */
    uint64_t begin_bytes;
    /** Number of bytes. Default: up to the source's end. [move] */
    uint64_t length_bytes;
    /** Attributes to omit, a sum of em_without. Default: none. [copy] */
    uint32_t without;
    /** Number of parallel connections, 1 to 64. Default: 1. [send] */
    uint32_t connections;
    /** Not zero: only the bytes over one connection, to or from programs other than Evermap.
     * Only the end of the connection marks the end of the data, so its completeness is unknown.
     * [send, receive] */
    uint32_t raw;
    /** Not zero: discard the data, to measure senders and networks; the target may be NULL.
     * [receive] */
    uint32_t discard;
    /** Maximum wait for a sender. Default: unlimited. [receive] */
    uint32_t wait_ms;
    /** Maximum time without progress. Default: a minute. An active peer sends a sign of life
     * every second, so less than 3000 ends healthy transfers. [send, receive] */
    uint32_t idle_ms;
} em_transfer_options;

#define EM_TRANSFER_OPTIONS_DEFAULT \
    { sizeof(em_transfer_options), NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** Results and costs of a transfer. Set `size` to sizeof(em_transfer_report) before the call; a
 * library with a shorter struct fills only that part. Times, faults and switches are those of
 * the process during the transfer. */
typedef struct em_transfer_report {
    size_t size;
    uint64_t size_bytes;           /**< bytes of the file, or of all files of a directory */
    uint64_t data_bytes;           /**< bytes moved or shared, including resumed ones */
    uint64_t hole_bytes;           /**< bytes in holes of source and target */
    uint64_t resumed_bytes;        /**< bytes from an interrupted copy */
    uint64_t calls;                /**< system calls that moved data or tried to */
    uint64_t wall_ns;              /**< elapsed time */
    uint64_t user_ns;              /**< processor time in user mode */
    uint64_t system_ns;            /**< processor time in the kernel */
    uint64_t flush_ns;             /**< part of the elapsed time spent flushing */
    uint64_t minor_faults;         /**< page faults without the disk */
    uint64_t major_faults;         /**< page faults with disk access */
    uint64_t voluntary_switches;   /**< because a thread waited */
    uint64_t involuntary_switches; /**< because the scheduler ran another thread */
    uint64_t files;                /**< files copied */
    uint64_t directories;          /**< directories copied */
    uint64_t failed;               /**< directory entries that could not be copied (`keep_going`) */
    uint64_t not_kept;             /**< attributes that the target lacks */
    uint32_t copied_permille;      /**< processor copies of each byte, times 1000; 0 for networks */
    uint32_t verified;             /**< not zero: the stored bytes were read back and are equal */
    char engine[32];               /**< engine that moved most of the bytes, or "" */
    char why[224];                 /**< reason for the first engine, truncated; "" for networks */
    uint32_t published;            /**< network: not zero if the receiver has published the file */
    uint32_t connections;          /**< number of connections; 0 without a network */
    char name[EM_NAME_BUFFER_BYTES]; /**< name of the received file, without its directory, or "" */
} em_transfer_report;

/** Copies a file, or a directory with all its contents, to a name; into an existing directory
 * under the source's name. The target gets its name only when it is complete, and an existing
 * file keeps the name until then; an existing directory is merged, file by file. Holes stay
 * holes; mode, owner, times, ACLs and extended attributes are kept as far as this user may. A
 * target that is not a regular file, such as a FIFO or a terminal, is written into. `options`
 * and `report` may be NULL.
 * Errors: EM_DISK_FULL, before the first byte if the file system can tell; EM_SOURCE_CHANGED,
 * EM_DIFFERS, EM_REFUSED, EM_CANCELLED, EM_NOT_PERMITTED, EM_IO; EM_BUSY when another process
 * resumes the same copy; EM_INVALID_ARGUMENT for a file onto itself. The source is never
 * changed. */
em_status evermap_copy(const char *source, const char *target, const em_transfer_options *options,
                       em_transfer_report *report);

/** Moves bytes between two open descriptors of any kind: files, pipes, sockets, devices. Between
 * files, offsets are equal in both, and the descriptors' positions are not used; a descriptor
 * without offsets is read from its position, or written at its end. Both stay open. Data of the
 * target after the written range is kept. `options` and `report` may be NULL.
 * Errors: EM_DISK_FULL, EM_REFUSED, EM_CANCELLED, EM_IO (with EPIPE for a disconnected peer);
 * EM_SOURCE_CHANGED when the source ends before `length_bytes`. Bytes that have arrived stay in
 * the target. */
em_status evermap_move(int source, int target, const em_transfer_options *options,
                       em_transfer_report *report);

/*
 * NETWORKS. An address is "HOST:PORT", "[IPV6]:PORT" or "unix:PATH". There is no encryption and no
 * authentication: use it on this machine, on trusted networks, or through a tunnel. Listen only
 * where you trust everyone who can connect.
 */

/** Sends one file to a receiver at an address. Success means that the receiver has published the
 * file, unless it discards the data, its target is not a regular file, or the bytes are `raw`. A
 * symbolic link is followed. `options` and `report` may be NULL.
 * Errors: EM_PEER when there is no connection, it broke, or the receiver gave up, with its
 * reason (if that happened at the very end, the message says that the file may exist);
 * EM_SOURCE_CHANGED, EM_DIFFERS: the receiver was told to discard the file, and did; EM_REFUSED,
 * EM_CANCELLED, EM_NOT_PERMITTED, EM_IO. */
em_status evermap_send(const char *source, const char *address, const em_transfer_options *options,
                       em_transfer_report *report);

/** Listens at an address, receives one file and stops listening. The file gets the name
 * `target`, or, in a directory, the sender's name. It gets the name when it is complete; an
 * existing file is replaced in one step, and a failed transfer leaves nothing. A target that is
 * not a regular file is written into. Connections with another protocol are rejected. `options`
 * and `report` may be NULL.
 * Errors: EM_PEER when the address is not available, no sender came within `wait_ms`, or the
 * sender disconnected; EM_DISK_FULL, EM_SOURCE_CHANGED, EM_DIFFERS, EM_REFUSED, EM_CANCELLED,
 * EM_NOT_PERMITTED, EM_IO. */
em_status evermap_receive(const char *address, const char *target, const em_transfer_options *options,
                          em_transfer_report *report);

/** A listening receiver: a handle like em_store. */
typedef struct evermap_receiver evermap_receiver;

/** Listens at an address until evermap_receiver_close(). Port 0 means any free port. A
 * connecting sender waits until evermap_receiver_next(). Errors: EM_PEER when the address is not
 * available, EM_TOO_MANY_OPEN, EM_IO. */
em_status evermap_listen(const char *address, evermap_receiver **receiver);

/** Writes the address with the actual port into a buffer that must have room for all of it: else
 * EM_INVALID_ARGUMENT, and the message says the required size. 300 bytes are sufficient. Errors:
 * EM_CLOSED, EM_FORKED. */
em_status evermap_receiver_address(const evermap_receiver *receiver, char *buffer, size_t size);

/** Receives one file like evermap_receive(), and continues to listen, also after a failure.
 * Errors: as evermap_receive(); EM_CLOSED, EM_FORKED; EM_BUSY while another thread
 * receives with this receiver. */
em_status evermap_receiver_next(evermap_receiver *receiver, const char *target,
                                const em_transfer_options *options, em_transfer_report *report);

/** Stops listening and removes a UNIX socket's name. Errors: EM_CLOSED, EM_FORKED; EM_BUSY while
 * a thread receives with it. */
em_status evermap_receiver_close(evermap_receiver *receiver);

#ifdef __cplusplus
}
#endif

#endif /* EVERMAP_TRANSFER_H */
