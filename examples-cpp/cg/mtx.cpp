// mtx: the reader behind mtx.hpp. It knows nothing of ranks.
#include "mtx.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <tuple>

namespace {

constexpr int line_limit = 1024; // the format's own limit

struct entry {
    int32_t row, column; // from 0
    double value;
    int64_t line; // where it stands in the file
};

bool before(const entry &a, const entry &b)
{
    return std::tie(a.row, a.column) < std::tie(b.row, b.column);
}

std::string position(int64_t row, int64_t column)
{
    return "(" + std::to_string(row) + ", " + std::to_string(column) + ")";
}

std::string number(double value)
{
    std::ostringstream text;
    text << value;
    return text.str();
}

class reader {
  public:
    explicit reader(const std::string &path) : path_(path), file_(path)
    {
        if (!file_) {
            fail(0, std::string("cannot open: ") + std::strerror(errno));
        }
    }

    mtx read()
    {
        read_banner();
        read_size();
        read_entries();
        std::sort(entries_.begin(), entries_.end(), before);
        check_entries();
        return compress();
    }

  private:
    // Line 0: the file as a whole.
    [[noreturn]] void fail(int64_t line, const std::string &what) const
    {
        throw std::runtime_error(path_ + (line > 0 ? ":" + std::to_string(line) : "") + ": " + what);
    }

    // Next line that is neither blank nor (unless it is the banner) a comment; false at the end.
    bool next_line()
    {
        for (;;) {
            errno = 0;
            file_.getline(text_, sizeof text_);
            if (file_.bad()) {
                fail(0, std::string("cannot read: ") + std::strerror(errno));
            }
            if (file_.gcount() == 0 && file_.eof()) {
                return false;
            }
            line_++;
            const auto length = file_.gcount() - (file_.eof() ? 0 : 1); // without the newline
            if (file_.fail() || std::strlen(text_) != static_cast<std::size_t>(length)) {
                fail(line_,
                     "line longer than " + std::to_string(line_limit) + " characters (or not a text file)");
            }
            if (line_ == 1 || (!only_space(text_) && text_[0] != '%')) {
                return true;
            }
        }
    }

    void read_banner()
    {
        if (!next_line()) {
            fail(0, "the file is empty");
        }
        std::string line = text_, mark, object, format, field, symmetry;
        std::transform(line.begin(), line.end(), line.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        std::istringstream words(line);
        if (!(words >> mark >> object >> format >> field >> symmetry) || mark != "%%matrixmarket") {
            fail(1, "not a Matrix Market file: the first line must be "
                    "\"%%MatrixMarket matrix coordinate real|integer general|symmetric\"");
        }
        if (object != "matrix" || format != "coordinate") {
            fail(1, "\"" + object + " " + format + "\" is not supported: only \"matrix coordinate\"");
        }
        if (field != "real" && field != "integer") {
            fail(1, "field \"" + field + "\" is not supported: only real and integer");
        }
        symmetric_ = symmetry == "symmetric";
        if (!symmetric_ && symmetry != "general") {
            fail(1, "symmetry \"" + symmetry + "\" is not supported: only general and symmetric");
        }
    }

    static bool only_space(const char *at) { return at[std::strspn(at, " \t\r\n")] == '\0'; }

    // Reads an integer at `at` and moves `at` behind it.
    static bool take_integer(const char *&at, int64_t &out)
    {
        char *end = nullptr;
        errno = 0;
        out = std::strtoll(at, &end, 10);
        const bool good =
            end != at && errno == 0 && (*end == '\0' || std::isspace(static_cast<unsigned char>(*end)));
        at = end;
        return good;
    }

    void read_size()
    {
        int64_t rows = 0, columns = 0;
        if (!next_line()) {
            fail(line_, "the file ends before the size line");
        }
        const char *at = text_;
        if (!take_integer(at, rows) || !take_integer(at, columns) || !take_integer(at, declared_) ||
            !only_space(at)) {
            fail(line_, "expected the size line \"rows columns entries\"");
        }
        if (rows != columns) {
            fail(line_,
                 "the matrix is " + std::to_string(rows) + " x " + std::to_string(columns) + ", not square");
        }
        constexpr int64_t limit = std::numeric_limits<int32_t>::max() - 1;
        if (rows < 1 || rows > limit || declared_ < 0) {
            fail(line_, std::to_string(rows) + " rows with " + std::to_string(declared_) +
                            " entries: rows must be 1 to " + std::to_string(limit));
        }
        rows_ = static_cast<int32_t>(rows);
    }

    void read_entry()
    {
        int64_t row = 0, column = 0;
        const char *at = text_;
        if (!take_integer(at, row) || !take_integer(at, column)) {
            fail(line_, "expected an entry \"row column value\"");
        }
        char *end = nullptr;
        const double value = std::strtod(at, &end);
        if (end == at || !only_space(end)) {
            fail(line_, "expected an entry \"row column value\"");
        }
        if (row < 1 || row > rows_ || column < 1 || column > rows_) {
            fail(line_, "index " + position(row, column) + " is outside 1 to " + std::to_string(rows_));
        }
        if (!std::isfinite(value)) {
            fail(line_, "the value " + number(value) + " is not a finite number");
        }
        if (row == column && value <= 0) {
            fail(line_, "diagonal entry " + std::to_string(row) + " is " + number(value) +
                            ": the matrix is not positive definite");
        }
        if (symmetric_ && column > row) {
            fail(line_, "entry " + position(row, column) + " lies above the diagonal of a symmetric matrix");
        }
        const auto i = static_cast<int32_t>(row - 1), j = static_cast<int32_t>(column - 1);
        entries_.push_back({i, j, value, line_});
        if (symmetric_ && i != j) {
            entries_.push_back({j, i, value, line_});
        }
    }

    // Entries are stored as they come, so that a size line that lies costs nothing.
    void read_entries()
    {
        for (int64_t i = 0; i < declared_; i++) {
            if (!next_line()) {
                fail(line_, "the file ends after " + std::to_string(i) + " of " + std::to_string(declared_) +
                                " entries");
            }
            read_entry();
        }
        if (next_line()) {
            fail(line_, "more than the " + std::to_string(declared_) + " entries declared");
        }
    }

    // After sorting: nothing twice, the same on both sides of the diagonal, a full diagonal.
    void check_entries() const
    {
        int32_t diagonal = 0;
        for (std::size_t i = 0; i < entries_.size(); i++) {
            const entry &e = entries_[i];
            if (i > 0 && !before(entries_[i - 1], e)) {
                const auto as_in_file =
                    symmetric_ ? position(e.column + 1, e.row + 1) : position(e.row + 1, e.column + 1);
                fail(std::max(e.line, entries_[i - 1].line), "entry " + as_in_file + " is given twice");
            }
            if (e.row == e.column && e.row == diagonal) {
                diagonal++;
            }
            if (!symmetric_ && e.row != e.column) {
                check_mirrored(e);
            }
        }
        if (diagonal < rows_) {
            fail(0, "row " + std::to_string(diagonal + 1) +
                        " has no diagonal entry: the matrix is not positive definite");
        }
    }

    void check_mirrored(const entry &e) const
    {
        const entry key{e.column, e.row, 0, 0};
        const auto found = std::lower_bound(entries_.begin(), entries_.end(), key, before);
        const double other = found != entries_.end() && !before(key, *found) ? found->value : 0;
        if (other != e.value) {
            fail(e.line, "entry " + position(e.row + 1, e.column + 1) + " is " + number(e.value) + " but " +
                             position(e.column + 1, e.row + 1) + " is " + number(other) +
                             ": the matrix is not symmetric");
        }
    }

    mtx compress() const
    {
        mtx out;
        out.rows = rows_;
        out.row_start.assign(static_cast<std::size_t>(rows_) + 1, 0);
        for (const entry &e : entries_) {
            out.row_start[static_cast<std::size_t>(e.row) + 1]++;
            out.column.push_back(e.column);
            out.value.push_back(e.value);
        }
        for (std::size_t row = 1; row < out.row_start.size(); row++) {
            out.row_start[row] += out.row_start[row - 1];
        }
        return out;
    }

    std::string path_;
    std::ifstream file_;
    char text_[line_limit + 2] = "";
    int64_t line_ = 0, declared_ = 0;
    int32_t rows_ = 0;
    bool symmetric_ = false;
    std::vector<entry> entries_;
};

} // namespace

mtx read_mtx(const std::string &path)
{
    return reader(path).read();
}
