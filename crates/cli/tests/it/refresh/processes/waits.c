/*
 * Timed waits of C11 threads for a process whose clock is stepped.
 *
 * librdkafka reads the clock, adds its timeout and waits until then. libfaketime fakes the clock, and turns the time
 * back into the machine's in `pthread_cond_timedwait`, but not in `cnd_timedwait`: a wait of a second would last for
 * hours in a process whose clock is a day ahead. In glibc both work on the same object.
 */
#include <errno.h>
#include <pthread.h>
#include <threads.h>
#include <time.h>

_Static_assert(sizeof(cnd_t) == sizeof(pthread_cond_t), "a condition is one of POSIX");

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict lock, const struct timespec *restrict until) {
    switch (pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)lock, until)) {
    case 0:
        return thrd_success;
    case ETIMEDOUT:
        return thrd_timedout;
    default:
        return thrd_error;
    }
}
