// One script and one style sheet under fixed names: the service knows each file that it sends.
export default {
  base: "/console/",
  build: {
    outDir: "bundle",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    sourcemap: false,
    license: { fileName: "licenses.txt" },
    chunkSizeWarningLimit: 1000,
    rollupOptions: {
      output: {
        entryFileNames: "console.js",
        assetFileNames: "console[extname]",
      },
    },
  },
  server: { proxy: { "/v1": "http://127.0.0.1:8080", "/docs": "http://127.0.0.1:8080" } },
};
