/* Put in front of fsync and fdatasync of a process with LD_PRELOAD, to make a disk slow, broken, or the
 * last thing that the process sees.
 *
 * The file named by SYNC_CONTROL is read at every call. It holds one line, at most 200 bytes:
 *
 *   WHAT NUMBER WHERE
 *
 *   pass 0 -          nothing special
 *   delay MS WHERE    the call takes MS milliseconds longer, or until the line is another one
 *   hold 0 WHERE      the call stands still until the line is another one
 *   fail ERRNO WHERE  the call does nothing and fails with that number
 *   kill N WHERE      the N-th such call since the line was first seen kills the process, unsynced
 *
 * WHERE is a part of the file's path, or - for every file. Each fault that happened appends its line
 * and the path to the file named by SYNC_CONTROL with ".log" behind it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 256, LOOK_MS = 5 };

struct order {
    char line[LINE];
    char what[16];
    long number;
    char where[160];
};

/* Gives 0 when there is no line that can be read. */
static int read_order(struct order *order) {
    const char *path = getenv("SYNC_CONTROL");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t length;
    if (file < 0)
        return 0;
    length = read(file, order->line, LINE - 1);
    close(file);
    if (length <= 0)
        return 0;
    order->line[length] = 0;
    order->line[strcspn(order->line, "\n")] = 0;
    return sscanf(order->line, "%15s %ld %159s", order->what, &order->number, order->where) == 3;
}

static void note(const struct order *order, const char *path) {
    char name[PATH_MAX], text[LINE + PATH_MAX];
    int file, length;
    snprintf(name, sizeof name, "%s.log", getenv("SYNC_CONTROL"));
    file = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0)
        return;
    length = snprintf(text, sizeof text, "%s %s\n", order->line, path);
    if (write(file, text, length) < 0)
        perror("SYNC_CONTROL log");
    close(file);
}

/* Whether it is this call's turn to kill: counts calls as long as the line stays the same. */
static int is_turn(const struct order *order) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char counted[LINE];
    static long calls;
    int turn;
    pthread_mutex_lock(&lock);
    if (strcmp(counted, order->line) != 0) {
        memcpy(counted, order->line, LINE);
        calls = 0;
    }
    calls += 1;
    turn = calls == order->number;
    pthread_mutex_unlock(&lock);
    return turn;
}

/* Waits up to `ms`, for ever if negative, while the line stays the same. */
static void wait_while(const struct order *order, long ms) {
    struct timespec pause = {0, LOOK_MS * 1000000L};
    struct order now;
    for (long waited = 0; ms < 0 || waited < ms; waited += LOOK_MS) {
        nanosleep(&pause, NULL);
        if (!read_order(&now) || strcmp(now.line, order->line) != 0)
            return;
    }
}

/* Gives -1 with errno set when the call is to fail. */
static int before(int fd) {
    struct order order;
    char link[64], path[PATH_MAX];
    ssize_t length;
    if (!read_order(&order) || strcmp(order.what, "pass") == 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    if (strcmp(order.where, "-") != 0 && !strstr(path, order.where))
        return 0;
    if (strcmp(order.what, "kill") == 0 && !is_turn(&order))
        return 0;
    note(&order, path);
    if (strcmp(order.what, "kill") == 0) {
        kill(getpid(), SIGKILL);
        pause();
    } else if (strcmp(order.what, "delay") == 0) {
        wait_while(&order, order.number);
    } else if (strcmp(order.what, "hold") == 0) {
        wait_while(&order, -1);
    } else if (strcmp(order.what, "fail") == 0) {
        errno = (int)order.number;
        return -1;
    }
    return 0;
}

static int call(const char *name, int fd) {
    int (*real)(int);
    if (before(fd) < 0)
        return -1;
    *(void **)&real = dlsym(RTLD_NEXT, name);
    return real(fd);
}

int fsync(int fd) { return call("fsync", fd); }

int fdatasync(int fd) { return call("fdatasync", fd); }
