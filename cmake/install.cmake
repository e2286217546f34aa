# What `cmake --install` puts where: program and its two other names, both libraries, header, and the files by which
# pkg-config and CMake find them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# For the static library: what it calls itself. Requires.private would bring what those libraries are made of too, which their
# shared libraries know by themselves, and which is often not installed to link with.
set(SWL_PC_LIBS ${JANSSON_LDFLAGS} ${PCRE2_LDFLAGS} ${UTF8PROC_LDFLAGS} ${CRYPTO_LDFLAGS} ${URING_LDFLAGS} ${CURL_LDFLAGS})
list(REMOVE_DUPLICATES SWL_PC_LIBS)
list(JOIN SWL_PC_LIBS " " SWL_PC_LIBS)
# Relative to the file itself, so that --prefix at install time holds.
file(RELATIVE_PATH SWL_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
set(SWL_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
set(SWL_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
set(SWL_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/swiftlet)

configure_file(cmake/swiftlet.pc.in swiftlet.pc @ONLY)
configure_package_config_file(cmake/swiftletConfig.cmake.in swiftletConfig.cmake INSTALL_DESTINATION ${SWL_CMAKE_DIR})
write_basic_package_version_file(swiftletConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS swiftlet_shared swiftlet_static EXPORT swiftletTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT swiftletTargets NAMESPACE swiftlet:: DESTINATION ${SWL_CMAKE_DIR})
install(DIRECTORY include/swiftlet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/swiftletConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/swiftletConfigVersion.cmake
    DESTINATION ${SWL_CMAKE_DIR})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/swiftlet.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
# What README.md points to.
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY bench/results DESTINATION ${CMAKE_INSTALL_DOCDIR}/bench)

if(TARGET swiftlet_cli)
    install(TARGETS swiftlet_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    # The program looks at the name by which it was called.
    foreach(name swiftlet-repack swiftlet-server)
        install(CODE "file(CREATE_LINK swiftlet
            \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/${name}\" SYMBOLIC)")
    endforeach()

    # Man pages and completions come from the program's own tables; a foreign program cannot be asked.
    if(NOT CMAKE_CROSSCOMPILING)
        set(pages ${CMAKE_CURRENT_BINARY_DIR}/pages)
        add_custom_command(OUTPUT ${pages}/stamp DEPENDS swiftlet_cli VERBATIM
            COMMAND ${CMAKE_COMMAND} -E rm -rf ${pages}
            COMMAND ${CMAKE_COMMAND} -E make_directory ${pages}/man
            COMMAND ${CMAKE_COMMAND} -E env SWIFTLET_HOME=${pages} $<TARGET_FILE:swiftlet_cli> help --man ${pages}/man
            COMMAND swiftlet_cli completion bash > ${pages}/bash
            COMMAND swiftlet_cli completion zsh > ${pages}/zsh
            COMMAND swiftlet_cli completion fish > ${pages}/fish
            COMMAND ${CMAKE_COMMAND} -E touch ${pages}/stamp)
        add_custom_target(swiftlet_pages ALL DEPENDS ${pages}/stamp)
        install(DIRECTORY ${pages}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
        install(DIRECTORY ${pages}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man5 FILES_MATCHING PATTERN "*.5")
        install(FILES ${pages}/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME swiftlet)
        install(FILES ${pages}/zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _swiftlet)
        install(FILES ${pages}/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME swiftlet.fish)
    endif()
endif()
