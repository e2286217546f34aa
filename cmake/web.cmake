# The chat page: built from web/ with npm, and held by the program as C data (server/page.h). Without npm the program is
# built all the same and says at / how to get the page.
# Whoever serves it takes the objects of swl_page.
#   SWL_WEB  AUTO  the page where npm can build it      ON  an error where it cannot      OFF  no page, no npm
set(SWL_WEB AUTO CACHE STRING "Build the chat page with npm: AUTO, ON or OFF")
set_property(CACHE SWL_WEB PROPERTY STRINGS AUTO ON OFF)

set(SWL_PAGE_SOURCES)
if(NOT SWL_WEB STREQUAL "OFF")
    find_program(SWL_NPM NAMES npm npm.cmd)
    find_program(SWL_NODE NAMES node nodejs)
    if(SWL_NODE)
        execute_process(COMMAND ${SWL_NODE} --version OUTPUT_VARIABLE SWL_NODE_VERSION OUTPUT_STRIP_TRAILING_WHITESPACE
            ERROR_QUIET)
    endif()
    if(SWL_NPM AND SWL_NODE_VERSION MATCHES "^v([0-9]+)" AND CMAKE_MATCH_1 GREATER_EQUAL 18)
        file(GLOB_RECURSE SWL_PAGE_INPUTS CONFIGURE_DEPENDS web/src/* web/public/*)
        foreach(name package.json package-lock.json .npmrc index.html vite.config.js embed.js)
            list(APPEND SWL_PAGE_INPUTS ${PROJECT_SOURCE_DIR}/web/${name})
        endforeach()
        # A page that could not be built leaves no page.stamp, so that the next build tries again.
        add_custom_command(OUTPUT page/page_data.c page/page.stamp
            COMMAND ${CMAKE_COMMAND} -D WEB=${PROJECT_SOURCE_DIR}/web -D OUT=${CMAKE_BINARY_DIR}/page -D NPM=${SWL_NPM}
                -D NODE=${SWL_NODE} -D REQUIRED=${SWL_WEB} -P ${PROJECT_SOURCE_DIR}/cmake/build_page.cmake
            DEPENDS ${SWL_PAGE_INPUTS} ${PROJECT_SOURCE_DIR}/cmake/build_page.cmake
            COMMENT "Building the chat page" USES_TERMINAL VERBATIM)
        add_custom_target(swiftlet_page DEPENDS ${CMAKE_BINARY_DIR}/page/page_data.c)
        set(SWL_PAGE_SOURCES ${CMAKE_BINARY_DIR}/page/page_data.c)
    elseif(SWL_WEB STREQUAL "AUTO")
        message(STATUS "No npm with Node 18 or newer: the program is built without the chat page")
    else()
        message(FATAL_ERROR "SWL_WEB=${SWL_WEB}: the chat page needs npm with Node 18 or newer")
    endif()
endif()

add_library(swl_page OBJECT server/page.c ${SWL_PAGE_SOURCES})
target_include_directories(swl_page PUBLIC server)
target_link_libraries(swl_page PRIVATE swl_flags)
target_compile_definitions(swl_page PRIVATE $<$<BOOL:${SWL_PAGE_SOURCES}>:SWL_HAVE_PAGE>)
