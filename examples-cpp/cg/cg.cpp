// cg: solves A x = A·1 by conjugate gradients, the rows of A spread over the ranks.
//
// Shows point-to-point and collective communication at work: rank 0 reads a Matrix Market file and
// sends each rank its rows; an alltoall and isend/irecv set up which entries of a vector each rank
// needs from which other; every product fetches just those; dot products are one allreduce.
//
// Build: find_package(dtl) and target_link_libraries(cg PRIVATE dtl::dtl) with the four .cpp here, or
//        c++ -std=c++17 -O2 cg/*.cpp $(pkg-config --cflags --libs libdtl) -o cg_solver
// Run:   dtlrun -n 4 ./cg_solver ../examples-c/data/bcsstk16.mtx      (or mpirun -n 4 …, or alone)
//        --tolerance T        stop at the relative residual T (1e-8)
//        --max-iterations N   give up after N (10000)
//        --reproducible       iterations and x bitwise equal for every number of ranks; prints a
//                             hash of x
// Prints a table: iterations, residual, error, time, how even the split is, the communicator.
// Exit status: 0 converged, 1 not converged or failed, 2 wrong arguments. The same on every rank.
#include "solver.hpp"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>

#include <unistd.h> // isatty

namespace {

constexpr int32_t tag_solution = 100, blocks = 256, progress_lines_every = 50;

struct usage_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct arguments {
    std::string path;
    double tolerance = 1e-8;
    int32_t max_iterations = 10000;
    bool reproducible = false;
};

// What the library may still write to until it is closed, so it lives longer.
struct state {
    dtl_comm_t comm = DTL_COMM_WORLD;
    int32_t rank = 0;
    matrix a;
    std::vector<double> b, x;
};

arguments parse(int argc, char **argv)
{
    arguments out;
    for (int i = 1; i < argc; i++) {
        const std::string word = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
        char *end = nullptr;
        if (word == "--reproducible") {
            out.reproducible = true;
        } else if (word == "--tolerance") {
            out.tolerance = std::strtod(value.c_str(), &end);
            if (value.empty() || *end != '\0' || !(out.tolerance > 0 && out.tolerance < 1)) {
                throw usage_error(word + ": wants a number between 0 and 1");
            }
            i++;
        } else if (word == "--max-iterations") {
            const long number = std::strtol(value.c_str(), &end, 10);
            if (value.empty() || *end != '\0' || number < 1 || number > INT32_MAX) {
                throw usage_error(word + ": wants a number from 1 to 2147483647");
            }
            out.max_iterations = static_cast<int32_t>(number);
            i++;
        } else if (word[0] == '-') {
            throw usage_error(word + ": unknown option");
        } else if (!out.path.empty()) {
            throw usage_error(word + ": more than one file");
        } else {
            out.path = word;
        }
    }
    if (out.path.empty()) {
        throw usage_error("FILE.mtx: no file given");
    }
    return out;
}

// On a terminal one line that is rewritten, else a line now and then.
void show_progress(int32_t iteration, double residual)
{
    if (isatty(STDERR_FILENO)) {
        std::fprintf(stderr, "\riteration %6d  residual %.3e", int{iteration}, residual);
    } else if (iteration % progress_lines_every == 0) {
        std::fprintf(stderr, "iteration %6d  residual %.3e\n", int{iteration}, residual);
    }
}

// Rank 0 reads; all learn how many rows it has (0 = it failed), so that all leave together.
int32_t read_on_root(const state &s, const std::string &path, mtx &whole)
{
    int32_t rows = 0;
    if (s.rank == 0) {
        try {
            whole = read_mtx(path);
            rows = whole.rows;
        } catch (const std::exception &failure) {
            std::fprintf(stderr, "cg: %s\n", failure.what());
        }
    }
    dtl::check(dtl_comm_bcast(s.comm, &rows, 1, DTL_DTYPE_INT32, 0));
    return rows;
}

// FNV-1a over the bits of x in the order of the rows, on rank 0.
uint64_t hash_solution(const state &s)
{
    if (s.rank != 0) {
        dtl::check(dtl_comm_send(s.comm, s.x.data(), s.x.size(), DTL_DTYPE_FLOAT64, 0, tag_solution));
        return 0;
    }
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    std::vector<double> part = s.x;
    for (int32_t rank = 0; rank < s.a.size(); rank++) {
        part.resize(static_cast<std::size_t>(s.a.first_row(rank + 1) - s.a.first_row(rank)));
        if (rank > 0) {
            dtl::check(dtl_comm_recv(s.comm, part.data(), part.size(), DTL_DTYPE_FLOAT64, rank, tag_solution,
                                     nullptr));
        }
        const auto *bytes = reinterpret_cast<const unsigned char *>(part.data());
        for (std::size_t i = 0; i < part.size() * sizeof(double); i++) {
            hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
        }
    }
    return hash;
}

void print_table(const state &s, const arguments &arguments, const cg_result &result, double elapsed)
{
    const auto rows = static_cast<double>(s.a.rows()), nonzeros = static_cast<double>(s.a.nonzeros());
    double error = 0, total = 0, most[5];
    for (const double value : s.x) {
        error = std::max(error, std::fabs(value - 1));
    }
    const double mine[5] = {error, rows, -rows, nonzeros, -nonzeros};
    dtl_comm_info_t info = DTL_COMM_INFO_INIT;
    dtl::check(dtl_comm_allreduce(s.comm, mine, most, 5, DTL_DTYPE_FLOAT64, DTL_OP_MAX));
    dtl::check(dtl_comm_reduce(s.comm, &nonzeros, &total, 1, DTL_DTYPE_FLOAT64, DTL_OP_SUM, 0));
    dtl::check(dtl_comm_info(s.comm, &info));
    const uint64_t hash = arguments.reproducible ? hash_solution(s) : 0;
    if (s.rank != 0) {
        return;
    }
    std::printf("matrix             %s\n", arguments.path.c_str());
    std::printf("rows, nonzeros     %d, %.0f\n", int{s.a.global_rows()}, total);
    std::printf("iterations         %d%s\n", int{result.iterations},
                result.converged ? "" : " (not converged)");
    std::printf("relative residual  %.3e\n", result.residual);
    std::printf("max |x - 1|        %.3e\n", most[0]);
    std::printf("time               %.3f s, %.1f us per iteration\n", elapsed,
                1e6 * elapsed / std::max(result.iterations, 1));
    std::printf("rows per rank      %.0f to %.0f\n", -most[2], most[1]);
    std::printf("nonzeros per rank  %.0f to %.0f\n", -most[4], most[3]);
    std::printf("communicator       %s, %d ranks: %s\n", info.kind, int{s.a.size()}, info.transport);
    if (arguments.reproducible) {
        std::printf("hash of x          %016" PRIx64 "\n", hash);
    }
}

int solve(state &s, const arguments &arguments)
{
    mtx whole;
    const int32_t rows = read_on_root(s, arguments.path, whole);
    if (rows == 0) {
        return EXIT_FAILURE;
    }
    // Reproducible: blocks that depend on the matrix alone, and no rank starts inside one.
    const int32_t block_rows = arguments.reproducible ? (rows - 1) / blocks + 1 : 0;
    s.a.distribute(s.comm, whole, std::max(block_rows, 1));
    whole = {};
    s.b.resize(s.a.rows());
    s.x.resize(s.a.rows());
    std::fill(s.a.x().begin(), s.a.x().end(), 1.0);
    s.a.multiply(s.b);

    cg_options options{arguments.tolerance, arguments.max_iterations, block_rows, nullptr};
    if (s.rank == 0) {
        options.progress = show_progress;
    }
    dtl::check(dtl_comm_barrier(s.comm));
    const auto start = std::chrono::steady_clock::now();
    const cg_result result = cg_solve(s.a, s.b, s.x, options);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (s.rank == 0 && isatty(STDERR_FILENO)) {
        std::fprintf(stderr, "\n");
    }
    print_table(s, arguments, result, elapsed.count());
    if (result.indefinite && s.rank == 0) {
        std::fprintf(stderr, "cg: %s: the matrix is not positive definite (found in iteration %d)\n",
                     arguments.path.c_str(), int{result.iterations} + 1);
    }
    // Launchers kill a job at its first exit status but 0: rank 0 must have printed by then.
    std::fflush(stdout);
    dtl::check(dtl_comm_barrier(s.comm));
    return result.converged ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace

int main(int argc, char **argv)
{
    state s; // before the library, so destroyed after it
    try {
        const dtl::library library;
        dtl::check(dtl_comm_rank(s.comm, &s.rank));
        return solve(s, parse(argc, argv));
    } catch (const usage_error &wrong) {
        if (s.rank == 0) {
            std::fprintf(stderr,
                         "cg: %s\nusage: cg FILE.mtx [--tolerance T] [--max-iterations N] [--reproducible]\n",
                         wrong.what());
        }
        return 2;
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "cg: rank %d: %s\n", int{s.rank}, failure.what());
        return EXIT_FAILURE;
    }
}
