# SWL_COMMIT: the commit that is built, for `swiftlet version --json` and the server's build_info. Whoever builds from an archive
# may set it with -DSWL_COMMIT=...; else git says it, if it is there, and it is looked up anew when HEAD moves.
set(SWL_COMMIT "" CACHE STRING "commit that is built (default: what git says)")
set(swl_commit "${SWL_COMMIT}")
if(NOT swl_commit AND EXISTS ${PROJECT_SOURCE_DIR}/.git)
    find_package(Git QUIET)
    if(GIT_FOUND)
        execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --short=12 HEAD WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
            OUTPUT_VARIABLE swl_commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
        execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --git-path logs/HEAD WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
            OUTPUT_VARIABLE swl_head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
        get_filename_component(swl_head "${swl_head}" ABSOLUTE BASE_DIR ${PROJECT_SOURCE_DIR})
        if(EXISTS "${swl_head}")
            set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${swl_head}")
        endif()
    endif()
endif()
if(NOT swl_commit MATCHES "^[0-9A-Za-z-]*$")
    message(FATAL_ERROR "SWL_COMMIT: \"${swl_commit}\" is no name of a commit")
endif()
set_source_files_properties(${PROJECT_SOURCE_DIR}/cli/version.c TARGET_DIRECTORY swiftlet_cli PROPERTIES
    COMPILE_DEFINITIONS "SWL_COMMIT=\"${swl_commit}\"")
