# Messages for nodes in Python, in a third of the time that all of their forms take: none for C++, and
# each type support compiled as one file, whose headers are read once.
macro(generate_for_python)
  list(FILTER AMENT_EXTENSIONS_rosidl_generate_idl_interfaces EXCLUDE REGEX "_cpp:")
  rosidl_generate_interfaces(${PROJECT_NAME} ${ARGN})
  foreach(library rosidl_typesupport_c rosidl_typesupport_fastrtps_c)
    if(TARGET ${PROJECT_NAME}__${library})
      set_target_properties(${PROJECT_NAME}__${library} PROPERTIES
        UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
    endif()
  endforeach()
endmacro()
