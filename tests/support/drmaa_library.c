/* A DRMAA 1.0 library (GFD.22) for tests: another than Grid Engine's, whose cluster is this
 * machine. Each task is a process.
 *
 * It behaves as libraries of other systems were seen to, where that differs from Grid Engine's:
 *   - it says that its system is a Slurm, or what TEST_DRMAA_SYSTEM says, before a session is
 *     opened and in one;
 *   - it takes a few of sbatch's options, "--name=value", memory in megabytes without a unit and
 *     times as hours:minutes, and refuses all others by name; any with TEST_DRMAA_NATIVE=any;
 *   - to terminate a task that has ended is an internal error, also among all of a session, and
 *     then those after it are left alone;
 *   - ids are "7_1", or "7" of a single task; the contact is empty; a task that was killed is
 *     reported as aborted.
 *
 * What is asked of it goes to the file TEST_DRMAA_RECORD, a line for each submission and
 * termination.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SUCCESS = 0, INTERNAL = 1, INVALID_ARGUMENT = 4, NO_SESSION = 5, ACTIVE_SESSION = 11,
    INVALID_VALUE = 14, INVALID_JOB = 18, EXIT_TIMEOUT = 23, NO_MORE = 25
};
enum {
    TERMINATE = 4, RUNNING = 0x20, ON_HOLD = 0x12, DONE = 0x30, FAILED = 0x40, ABORTED = -1,
    MOST = 4096
};

typedef struct {
    char command[4096], directory[4096], output[4096], native[4096], state[64];
} Template;
typedef struct { char id[32]; pid_t pid; int ended, status, forgotten; } Task;
typedef struct { int first, count, next; } List;

static Task tasks[MOST];
static int known, submissions, open_session;

static int fail(int code, char *words, size_t size, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, size, format, arguments);
    va_end(arguments);
    return code;
}

static void record(const char *format, ...) {
    const char *path = getenv("TEST_DRMAA_RECORD");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    fclose(file);
}

static const char *or_default(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

/* ---- the session */

int drmaa_init(const char *contact, char *words, size_t size) {
    if (open_session) return fail(ACTIVE_SESSION, words, size, "there is a session");
    open_session = 1;
    return SUCCESS;
}
int drmaa_exit(char *words, size_t size) {
    if (!open_session) return fail(NO_SESSION, words, size, "there is no session");
    open_session = 0;
    return SUCCESS;
}
int drmaa_get_contact(char *contact, size_t length, char *words, size_t size) {
    snprintf(contact, length, "%s", "");
    return SUCCESS;
}
int drmaa_version(unsigned *major, unsigned *minor, char *words, size_t size) {
    *major = 1;
    *minor = 0;
    return SUCCESS;
}
int drmaa_get_DRM_system(char *system, size_t length, char *words, size_t size) {
    snprintf(system, length, "%s", or_default("TEST_DRMAA_SYSTEM", "SLURM 22.05.8"));
    return SUCCESS;
}
int drmaa_get_DRMAA_implementation(char *name, size_t length, char *words, size_t size) {
    snprintf(name, length, "%s", "test library 1.0");
    return SUCCESS;
}
const char *drmaa_strerror(int code) { return "an error"; }

/* ---- job templates */

int drmaa_allocate_job_template(Template **made, char *words, size_t size) {
    *made = calloc(1, sizeof **made);
    return SUCCESS;
}
int drmaa_delete_job_template(Template *template, char *words, size_t size) {
    free(template);
    return SUCCESS;
}

static char *field(Template *template, const char *name) {
    if (!strcmp(name, "drmaa_remote_command")) return template->command;
    if (!strcmp(name, "drmaa_wd")) return template->directory;
    if (!strcmp(name, "drmaa_output_path")) return template->output;
    if (!strcmp(name, "drmaa_native_specification")) return template->native;
    return NULL;
}
int drmaa_set_attribute(Template *template, const char *name, const char *value, char *words,
                        size_t size) {
    char *place = field(template, name);
    if (place) snprintf(place, sizeof template->command, "%s", value);
    if (!strcmp(name, "drmaa_js_state"))
        snprintf(template->state, sizeof template->state, "%s", value);
    return SUCCESS;
}
int drmaa_get_attribute(Template *template, const char *name, char *value, size_t length,
                        char *words, size_t size) {
    char *place = field(template, name);
    snprintf(value, length, "%s", place ? place : "");
    return SUCCESS;
}
int drmaa_set_vector_attribute(Template *t, const char *name, const char **values, char *words,
                               size_t size) {
    return SUCCESS;
}
int drmaa_get_vector_attribute(Template *t, const char *name, List **values, char *words,
                               size_t size) {
    *values = calloc(1, sizeof **values);
    return SUCCESS;
}
int drmaa_get_attribute_names(List **names, char *words, size_t size) {
    *names = calloc(1, sizeof **names);
    return SUCCESS;
}
int drmaa_get_vector_attribute_names(List **names, char *words, size_t size) {
    *names = calloc(1, sizeof **names);
    return SUCCESS;
}
int drmaa_get_next_attr_name(List *names, char *name, size_t length) { return NO_MORE; }
int drmaa_get_next_attr_value(List *values, char *value, size_t length) { return NO_MORE; }
int drmaa_get_num_attr_names(List *names, int *count) { *count = 0; return SUCCESS; }
int drmaa_get_num_attr_values(List *values, int *count) { *count = 0; return SUCCESS; }
void drmaa_release_attr_names(List *names) { free(names); }
void drmaa_release_attr_values(List *values) { free(values); }

/* ---- native options */

static int is_number(const char *text) {
    return *text && strspn(text, "0123456789") == strlen(text);
}

static int is_time(const char *text) {
    const char *colon = strchr(text, ':');
    return colon && colon > text && isdigit(*text) && strspn(text, "0123456789:") == strlen(text);
}

static int takes(const char *option) {
    static const char *names[] = {"partition", "account", "qos", "constraint", "gres",
                                  "reservation", "nodelist", "licenses", NULL};
    static const char *numbers[] = {"mem", "mem-per-cpu", "cpus-per-task", "ntasks", "tmp", NULL};
    const char *value = strchr(option, '=');
    size_t length = value ? (size_t)(value - option) : strlen(option);
    if (!strncmp(option, "time=", 5)) return is_time(option + 5);
    for (const char **name = names; *name; name++)
        if (strlen(*name) == length && !strncmp(*name, option, length)) return value && value[1];
    for (const char **name = numbers; *name; name++)
        if (strlen(*name) == length && !strncmp(*name, option, length))
            return value && is_number(value + 1);
    return !strcmp(option, "exclusive") || !strcmp(option, "requeue") ||
           !strcmp(option, "no-requeue");
}

static int check(const char *native, char *words, size_t size) {
    char copy[4096], *rest = NULL;
    if (getenv("TEST_DRMAA_NATIVE")) return SUCCESS;
    snprintf(copy, sizeof copy, "%s", native);
    for (char *option = strtok_r(copy, " ", &rest); option; option = strtok_r(NULL, " ", &rest))
        if (strncmp(option, "--", 2) || !takes(option + 2))
            return fail(INVALID_VALUE, words, size,
                        "these native options cannot be: %s (not supported: %s)", native, option);
    return SUCCESS;
}

/* ---- tasks */

static void run(const Template *template, int number) {
    char path[4096], *mark;
    const char *output = *template->output == ':' ? template->output + 1 : "/dev/null";
    snprintf(path, sizeof path, "%s", output);
    if ((mark = strstr(path, "$drmaa_incr_ph$")))
        snprintf(mark, sizeof path - (size_t)(mark - path), "%d%s", number,
                 output + (mark - path) + strlen("$drmaa_incr_ph$"));
    setsid();
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(open("/dev/null", O_RDONLY), 0);
    dup2(file, 1);
    dup2(file, 2);
    for (int other = 3; other < 1024; other++) close(other);
    if (*template->directory && chdir(template->directory)) _exit(126);
    if (!strcmp(template->state, "drmaa_hold")) for (;;) pause();
    execl(template->command, template->command, (char *)NULL);
    _exit(127);
}

int drmaa_run_bulk_jobs(List **ids, const Template *template, int start, int end, int step,
                        char *words, size_t size) {
    int refused = check(template->native, words, size);
    if (refused) return refused;
    *ids = calloc(1, sizeof **ids);
    (*ids)->first = (*ids)->next = known;
    submissions++;
    record("submit %s\n", template->native);
    for (int number = start; number <= end; number += step) {
        Task *task = &tasks[known++];
        snprintf(task->id, sizeof task->id, end > start ? "%d_%d" : "%d", submissions, number);
        if ((task->pid = fork()) == 0) run(template, number);
        (*ids)->count++;
    }
    return SUCCESS;
}
int drmaa_run_job(char *id, size_t length, const Template *template, char *words, size_t size) {
    List *ids = NULL;
    int code = drmaa_run_bulk_jobs(&ids, template, 1, 1, 1, words, size);
    if (code == SUCCESS) snprintf(id, length, "%s", tasks[ids->first].id);
    free(ids);
    return code;
}
int drmaa_get_next_job_id(List *ids, char *id, size_t length) {
    if (ids->next == ids->first + ids->count) return NO_MORE;
    snprintf(id, length, "%s", tasks[ids->next++].id);
    return SUCCESS;
}
int drmaa_get_num_job_ids(List *ids, int *count) { *count = ids->count; return SUCCESS; }
void drmaa_release_job_ids(List *ids) { free(ids); }

static Task *found(const char *id) {
    for (int i = 0; i < known; i++)
        if (!strcmp(tasks[i].id, id) && !tasks[i].forgotten) return &tasks[i];
    return NULL;
}

static int has_ended(Task *task) {
    if (!task->ended && waitpid(task->pid, &task->status, WNOHANG) == task->pid) task->ended = 1;
    return task->ended;
}

static int terminate(Task *task, char *words, size_t size) {
    if (has_ended(task)) {
        record("ended %s\n", task->id);
        return fail(INTERNAL, words, size,
                    "cannot terminate %s: it is already completing or completed", task->id);
    }
    record("terminate %s\n", task->id);
    if (killpg(task->pid, SIGKILL)) kill(task->pid, SIGKILL); /* which may not lead a group yet */
    waitpid(task->pid, &task->status, 0);
    task->ended = 1;
    task->status = ABORTED;
    return SUCCESS;
}

int drmaa_control(const char *id, int action, char *words, size_t size) {
    if (action != TERMINATE)
        return fail(INVALID_ARGUMENT, words, size, "only to terminate is known here");
    if (strcmp(id, "DRMAA_JOB_IDS_SESSION_ALL")) {
        Task *task = found(id);
        return task ? terminate(task, words, size)
                    : fail(INVALID_JOB, words, size, "there is no job %s", id);
    }
    for (int i = 0; i < known; i++) {
        int code = tasks[i].forgotten ? SUCCESS : terminate(&tasks[i], words, size);
        if (code) return code;
    }
    return SUCCESS;
}

int drmaa_job_ps(const char *id, int *state, char *words, size_t size) {
    Task *task = found(id);
    if (!task) return fail(INVALID_JOB, words, size, "there is no job %s", id);
    *state = !has_ended(task) ? RUNNING : task->status == 0 ? DONE : FAILED;
    return SUCCESS;
}

int drmaa_synchronize(const char **ids, long seconds, int dispose, char *words, size_t size) {
    return fail(INVALID_ARGUMENT, words, size, "nobody waits here");
}

int drmaa_wait(const char *id, char *name, size_t length, int *status, long seconds, List **usage,
               char *words, size_t size) {
    Task *task = found(id);
    if (!task) return fail(INVALID_JOB, words, size, "there is no job %s", id);
    if (!has_ended(task)) return fail(EXIT_TIMEOUT, words, size, "it runs");
    snprintf(name, length, "%s", id);
    *status = task->status;
    *usage = calloc(1, sizeof **usage);
    task->forgotten = 1;
    return SUCCESS;
}

int drmaa_wifaborted(int *yes, int status, char *words, size_t size) {
    *yes = (status & 1) != 0;
    return SUCCESS;
}
int drmaa_wifexited(int *yes, int status, char *words, size_t size) {
    *yes = WIFEXITED(status);
    return SUCCESS;
}
int drmaa_wexitstatus(int *code, int status, char *words, size_t size) {
    *code = WEXITSTATUS(status);
    return SUCCESS;
}
int drmaa_wifsignaled(int *yes, int status, char *words, size_t size) {
    *yes = WIFSIGNALED(status);
    return SUCCESS;
}
int drmaa_wtermsig(char *name, size_t length, int status, char *words, size_t size) {
    snprintf(name, length, "SIG%s", sigabbrev_np(WTERMSIG(status)));
    return SUCCESS;
}
int drmaa_wcoredump(int *yes, int status, char *words, size_t size) {
    *yes = WCOREDUMP(status);
    return SUCCESS;
}
