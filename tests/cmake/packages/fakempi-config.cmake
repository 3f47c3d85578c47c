# A package that another environment brings along.
if(NOT TARGET fakempi::fakempi)
  add_library(fakempi::fakempi INTERFACE IMPORTED)
  target_link_libraries(fakempi::fakempi INTERFACE m)
endif()
