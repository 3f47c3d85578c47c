// Classes that satisfy the concepts, for the block of docs/how-to/backend-from-classes.md.
#include <cstddef>
#include <dtl.hpp>
#include <dtl/concepts.hpp>

class my_space {
  public:
    using pointer = void *;
    using size_type = std::size_t;
    explicit my_space(int node = 0) : node_(node) {}
    void *allocate(size_type size);
    void *allocate(size_type size, size_type alignment);
    void deallocate(void *first, size_type size);
    dtl::memory_space_properties properties() const;
    const char *name() const { return node_ == 0 ? "near" : "far"; }

  private:
    int node_;
};

class my_executor {
  public:
    explicit my_executor(int threads = 1) : threads_(threads) {}
    template <class F> void execute(F &&function) { function(); }
    const char *name() const { return threads_ == 1 ? "one thread" : "threads"; }

  private:
    int threads_;
};

class my_comm {
  public:
    using size_type = std::size_t;
    struct request {};
    explicit my_comm(const dtl_comm_open_t &args);
    int rank() const;
    int size() const;
    void send(const void *data, size_type size, int dest, int tag);
    void recv(void *data, size_type size, int source, int tag);
    request isend(const void *data, size_type size, int dest, int tag);
    request irecv(void *data, size_type size, int source, int tag);
    bool test(request &operation);
    void wait(request &operation);
};

void register_backends(int threads)
{
#include "block"
}
