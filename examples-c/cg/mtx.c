/* mtx: the reader behind mtx.h. It knows nothing of ranks. */
#include "mtx.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_LIMIT = 1024 }; /* the format's own limit */

typedef struct entry_t {
    int32_t row, column; /* from 0 */
    double value;
    int64_t line; /* where it stands in the file */
} entry_t;

typedef struct reader_t {
    FILE *file;
    const char *path;
    int64_t line;
    char text[LINE_LIMIT + 2];
    bool symmetric;
    int32_t rows;
    int64_t declared;
    entry_t *entries;
    int64_t count, room;
    char *error;
    size_t cap;
} reader_t;

/* Writes the error text and answers false, for `return fail(…)`. Line 0: the file as a whole. */
static bool fail(reader_t *r, int64_t line, const char *format, ...)
{
    int used = line > 0 ? snprintf(r->error, r->cap, "%s:%" PRId64 ": ", r->path, line)
                        : snprintf(r->error, r->cap, "%s: ", r->path);
    if (used >= 0 && (size_t)used < r->cap) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(r->error + used, r->cap - (size_t)used, format, arguments);
        va_end(arguments);
    }
    return false;
}

/* Next line that is neither blank nor (unless it is the banner) a comment. At the end of the file
 * `*more` is false; false as the result is an error. */
static bool next_line(reader_t *r, bool *more)
{
    for (;;) {
        errno = 0;
        if (fgets(r->text, sizeof r->text, r->file) == NULL) {
            if (ferror(r->file)) {
                return fail(r, 0, "cannot read: %s", strerror(errno));
            }
            *more = false;
            return true;
        }
        r->line++;
        if (strchr(r->text, '\n') == NULL && !feof(r->file)) {
            return fail(r, r->line, "line longer than %d characters (or not a text file)", LINE_LIMIT);
        }
        const bool blank = r->text[strspn(r->text, " \t\r\n")] == '\0';
        if (r->line == 1 || (!blank && r->text[0] != '%')) {
            *more = true;
            return true;
        }
    }
}

static bool read_banner(reader_t *r)
{
    char mark[LINE_LIMIT + 2], object[LINE_LIMIT + 2], format[LINE_LIMIT + 2];
    char field[LINE_LIMIT + 2], symmetry[LINE_LIMIT + 2];
    bool more = false;
    if (!next_line(r, &more)) {
        return false;
    }
    if (!more) {
        return fail(r, 0, "the file is empty");
    }
    for (char *c = r->text; *c != '\0'; c++) {
        *c = (char)tolower((unsigned char)*c);
    }
    if (sscanf(r->text, "%s %s %s %s %s", mark, object, format, field, symmetry) != 5 ||
        strcmp(mark, "%%matrixmarket") != 0) {
        return fail(r, 1,
                    "not a Matrix Market file: the first line must be "
                    "\"%%%%MatrixMarket matrix coordinate real|integer general|symmetric\"");
    }
    if (strcmp(object, "matrix") != 0 || strcmp(format, "coordinate") != 0) {
        return fail(r, 1, "\"%.32s %.32s\" is not supported: only \"matrix coordinate\"", object, format);
    }
    if (strcmp(field, "real") != 0 && strcmp(field, "integer") != 0) {
        return fail(r, 1, "field \"%.32s\" is not supported: only real and integer", field);
    }
    r->symmetric = strcmp(symmetry, "symmetric") == 0;
    if (!r->symmetric && strcmp(symmetry, "general") != 0) {
        return fail(r, 1, "symmetry \"%.32s\" is not supported: only general and symmetric", symmetry);
    }
    return true;
}

/* Reads an integer at *at and moves *at behind it. */
static bool take_integer(char **at, int64_t *out)
{
    char *end = *at;
    errno = 0;
    const long long value = strtoll(*at, &end, 10);
    if (end == *at || errno != 0 || (*end != '\0' && !isspace((unsigned char)*end))) {
        return false;
    }
    *at = end;
    *out = value;
    return true;
}

static bool only_space(const char *at)
{
    return at[strspn(at, " \t\r\n")] == '\0';
}

static bool read_size(reader_t *r)
{
    int64_t rows = 0, columns = 0;
    bool more = false;
    if (!next_line(r, &more)) {
        return false;
    }
    if (!more) {
        return fail(r, r->line, "the file ends before the size line");
    }
    char *at = r->text;
    if (!take_integer(&at, &rows) || !take_integer(&at, &columns) || !take_integer(&at, &r->declared) ||
        !only_space(at)) {
        return fail(r, r->line, "expected the size line \"rows columns entries\"");
    }
    if (rows != columns) {
        return fail(r, r->line, "the matrix is %" PRId64 " x %" PRId64 ", not square", rows, columns);
    }
    if (rows < 1 || rows >= INT32_MAX || r->declared < 0) {
        return fail(r, r->line, "%" PRId64 " rows with %" PRId64 " entries: rows must be 1 to %d", rows,
                    r->declared, INT32_MAX - 1);
    }
    r->rows = (int32_t)rows;
    return true;
}

/* Makes room as entries come, so that a size line that lies costs nothing. */
static bool append(reader_t *r, entry_t entry)
{
    if (r->count == r->room) {
        const int64_t room = r->room == 0 ? 1024 : 2 * r->room;
        entry_t *entries = realloc(r->entries, (size_t)room * sizeof *entries);
        if (entries == NULL) {
            return fail(r, entry.line, "no memory for %" PRId64 " entries", room);
        }
        r->entries = entries;
        r->room = room;
    }
    r->entries[r->count++] = entry;
    return true;
}

static bool read_entry(reader_t *r)
{
    int64_t row = 0, column = 0;
    char *at = r->text;
    char *end = NULL;
    if (!take_integer(&at, &row) || !take_integer(&at, &column)) {
        return fail(r, r->line, "expected an entry \"row column value\"");
    }
    const double value = strtod(at, &end);
    if (end == at || !only_space(end)) {
        return fail(r, r->line, "expected an entry \"row column value\"");
    }
    if (row < 1 || row > r->rows || column < 1 || column > r->rows) {
        return fail(r, r->line, "index (%" PRId64 ", %" PRId64 ") is outside 1 to %d", row, column,
                    (int)r->rows);
    }
    if (!isfinite(value)) {
        return fail(r, r->line, "the value %g is not a finite number", value);
    }
    if (row == column && value <= 0) {
        return fail(r, r->line, "diagonal entry %" PRId64 " is %g: the matrix is not positive definite", row,
                    value);
    }
    if (r->symmetric && column > row) {
        return fail(r, r->line,
                    "entry (%" PRId64 ", %" PRId64 ") lies above the diagonal of a symmetric matrix", row,
                    column);
    }
    entry_t entry = {(int32_t)(row - 1), (int32_t)(column - 1), value, r->line};
    if (!append(r, entry)) {
        return false;
    }
    if (r->symmetric && row != column) {
        const entry_t mirrored = {entry.column, entry.row, value, r->line};
        return append(r, mirrored);
    }
    return true;
}

static bool read_entries(reader_t *r)
{
    bool more = false;
    for (int64_t i = 0; i < r->declared; i++) {
        if (!next_line(r, &more)) {
            return false;
        }
        if (!more) {
            return fail(r, r->line, "the file ends after %" PRId64 " of %" PRId64 " entries", i, r->declared);
        }
        if (!read_entry(r)) {
            return false;
        }
    }
    if (!next_line(r, &more)) {
        return false;
    }
    return more ? fail(r, r->line, "more than the %" PRId64 " entries declared", r->declared) : true;
}

static int by_position(const void *left, const void *right)
{
    const entry_t *a = left, *b = right;
    if (a->row != b->row) {
        return a->row < b->row ? -1 : 1;
    }
    return (a->column > b->column) - (a->column < b->column);
}

/* After sorting: nothing twice, the same on both sides of the diagonal, a full diagonal. */
static bool check_entries(reader_t *r)
{
    int32_t diagonal = 0;
    for (int64_t i = 0; i < r->count; i++) {
        const entry_t *e = &r->entries[i];
        if (i > 0 && by_position(e - 1, e) == 0) {
            const int64_t later = e->line > e[-1].line ? e->line : e[-1].line;
            const entry_t below = r->symmetric ? (entry_t){e->column, e->row, 0, 0} : *e; /* as in the file */
            return fail(r, later, "entry (%d, %d) is given twice", (int)below.row + 1, (int)below.column + 1);
        }
        if (e->row == e->column && e->row == diagonal) {
            diagonal++;
        }
        if (!r->symmetric && e->row != e->column) {
            const entry_t key = {e->column, e->row, 0, 0};
            const entry_t *other = bsearch(&key, r->entries, (size_t)r->count, sizeof key, by_position);
            const double mirrored = other != NULL ? other->value : 0.0;
            if (mirrored != e->value) {
                return fail(r, e->line,
                            "entry (%d, %d) is %g but (%d, %d) is %g: the matrix is not symmetric",
                            (int)e->row + 1, (int)e->column + 1, e->value, (int)e->column + 1,
                            (int)e->row + 1, mirrored);
            }
        }
    }
    if (diagonal < r->rows) {
        return fail(r, 0, "row %d has no diagonal entry: the matrix is not positive definite",
                    (int)diagonal + 1);
    }
    return true;
}

static bool compress(reader_t *r, mtx_t *out)
{
    out->rows = r->rows;
    out->row_start = calloc((size_t)r->rows + 1, sizeof *out->row_start);
    out->column = malloc((size_t)r->count * sizeof *out->column);
    out->value = malloc((size_t)r->count * sizeof *out->value);
    if (out->row_start == NULL || out->column == NULL || out->value == NULL) {
        mtx_free(out);
        return fail(r, 0, "no memory for %" PRId64 " entries", r->count);
    }
    for (int64_t i = 0; i < r->count; i++) {
        out->row_start[r->entries[i].row + 1]++;
        out->column[i] = r->entries[i].column;
        out->value[i] = r->entries[i].value;
    }
    for (int32_t row = 0; row < r->rows; row++) {
        out->row_start[row + 1] += out->row_start[row];
    }
    return true;
}

bool mtx_read(const char *path, mtx_t *out, char *error, size_t cap)
{
    reader_t r = {.path = path, .error = error, .cap = cap};
    memset(out, 0, sizeof *out);
    r.file = fopen(path, "r");
    if (r.file == NULL) {
        return fail(&r, 0, "cannot open: %s", strerror(errno));
    }
    bool good = read_banner(&r) && read_size(&r) && read_entries(&r);
    fclose(r.file);
    if (good && r.count > 0) {
        qsort(r.entries, (size_t)r.count, sizeof *r.entries, by_position);
    }
    good = good && check_entries(&r) && compress(&r, out);
    free(r.entries);
    return good;
}

void mtx_free(mtx_t *matrix)
{
    free(matrix->row_start);
    free(matrix->column);
    free(matrix->value);
    memset(matrix, 0, sizeof *matrix);
}
