# Install rules of the library. Each program installs itself beside its target; each compiled
# component gets an export file of its own, so that its dependencies are needed only where it is used.
# The target `programs` builds all that is installed.
include(CMakePackageConfigHelpers)

set(cohort_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/cohort")

install(
  TARGETS cohort_headers
  EXPORT cohort-targets
  FILE_SET HEADERS
  FILE_SET parts)
install(
  EXPORT cohort-targets
  NAMESPACE cohort::
  DESTINATION "${cohort_package_dir}")

# cohort_host -> component `host`, imported as cohort::host.
foreach(component host blas serve cuda onnx)
  if(TARGET cohort_${component})
    if(TARGET programs)
      add_dependencies(programs cohort_${component})
    endif()
    set_target_properties(cohort_${component} PROPERTIES EXPORT_NAME ${component})
    # A static library names its private links to its users; flags are none that they need.
    get_target_property(links cohort_${component} INTERFACE_LINK_LIBRARIES)
    list(REMOVE_ITEM links cohort_dev "$<LINK_ONLY:cohort_dev>")
    set_target_properties(cohort_${component} PROPERTIES INTERFACE_LINK_LIBRARIES "${links}")
    set(header_set "")
    get_target_property(sets cohort_${component} INTERFACE_HEADER_SETS)
    if("HEADERS" IN_LIST sets)
      set(header_set FILE_SET HEADERS)
    endif()
    install(
      TARGETS cohort_${component}
      EXPORT cohort-${component}-targets
      ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
      LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" ${header_set})
    install(
      EXPORT cohort-${component}-targets
      NAMESPACE cohort::
      DESTINATION "${cohort_package_dir}")
  endif()
endforeach()

configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/cohort-config.cmake.in" "${PROJECT_BINARY_DIR}/cohort-config.cmake"
  INSTALL_DESTINATION "${cohort_package_dir}")
# Before 1.0 a minor version may break its users, see docs/versioning.md.
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/cohort-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/cohort-config.cmake"
              "${PROJECT_BINARY_DIR}/cohort-config-version.cmake"
        DESTINATION "${cohort_package_dir}")
if(TARGET programs)
  install(FILES "${PROJECT_SOURCE_DIR}/packaging/alerts.yml" DESTINATION "${CMAKE_INSTALL_DATADIR}/cohort")
  install(FILES "${PROJECT_SOURCE_DIR}/packaging/cohort@.service" DESTINATION "lib/systemd/system")
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
