from gridengine.cli import main

main()
