// Classes that satisfy the concepts, for the block about plugins of docs/how-to/backend-from-classes.md.
#include <dtl/plugin.hpp>

class my_space {
  public:
    using pointer = void *;
    using size_type = std::size_t;
    void *allocate(size_type size);
    void *allocate(size_type size, size_type alignment);
    void deallocate(void *first, size_type size);
    dtl::memory_space_properties properties() const;
    const char *name() const;
};

class my_executor {
  public:
    template <class F> void execute(F &&function) { function(); }
    const char *name() const { return "mine"; }
};

#include "block"
