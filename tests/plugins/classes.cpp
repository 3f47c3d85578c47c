// A plugin that is made of classes written after DTL's guide: no table, and no function of the library.
#include <dtl/plugin.hpp>

#include "../cpp/dtl_guide.hpp"

DTL_PLUGIN_CLASSES("classes", "1.0", dtl::guide::guide_memory_space, dtl::guide::guide_executor)
