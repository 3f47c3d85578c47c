/* A program with two Rust libraries, both static. */
#include <dtl.h>

int32_t other_answer(void);

int main(void)
{
    DTL_CHECK(dtl_init(NULL));
    DTL_CHECK(dtl_finalize());
    return other_answer() == 42 ? 0 : 1;
}
